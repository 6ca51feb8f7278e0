//! What a journal needs of a disk, and the disk of this machine.
//!
//! The trait is the seam at which the tests put a simulated disk. It promises what POSIX promises, and no more: what
//! was written is on the disk only after [`File::sync`]; until then any part of it may be there after a crash, in any
//! order; a name is on the disk after [`Disk::sync_folder`].

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use ropewalk_os::process;

/// Where journals are.
pub trait Disk: Send + Sync + 'static {
    /// A file of this disk.
    type File: File + 'static;
    /// An open folder of this disk.
    type Folder: Send;

    /// Opens a file to read and to write, and makes it if it is missing and `make` says so.
    ///
    /// # Errors
    ///
    /// The system's, `NotFound` among them, or `PermissionDenied` for a file that other users may write.
    fn open(&self, path: &Path, make: bool) -> io::Result<Self::File>;

    /// Makes a file, and locks it. A file or link that has the name loses it, and is left alone otherwise.
    ///
    /// # Errors
    ///
    /// The system's, or `ResourceBusy` if the file that has the name is locked.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Whether the name still leads to this file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn is_at(&self, file: &Self::File, path: &Path) -> io::Result<bool>;

    /// Gives a file another name, and replaces the file that had it.
    ///
    /// # Errors
    ///
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Opens the folder of this file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn folder(&self, path: &Path) -> io::Result<Self::Folder>;

    /// Waits until the names in this folder are on the disk.
    ///
    /// # Errors
    ///
    /// The system's.
    fn sync_folder(&self, folder: &Self::Folder) -> io::Result<()>;

    /// A number that no other file has.
    fn number(&self) -> u64;
}

/// A file that is open.
pub trait File: Send + Sync {
    /// Takes the file for this process until it is dropped. Gives the process id of the one that has it, or 0 for one
    /// that is not known.
    ///
    /// # Errors
    ///
    /// The system's.
    fn lock(&self) -> io::Result<Result<(), u32>>;

    /// The size in bytes.
    ///
    /// # Errors
    ///
    /// The system's.
    fn size(&self) -> io::Result<u64>;

    /// Reads bytes from an offset on; 0 at the end of the file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes bytes from an offset on; perhaps only the first of them.
    ///
    /// # Errors
    ///
    /// The system's.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Takes room, filled with zeros, from the end of the file on.
    ///
    /// # Errors
    ///
    /// The system's.
    fn extend(&self, from: u64, to: u64) -> io::Result<()>;

    /// Ends the file at this size.
    ///
    /// # Errors
    ///
    /// The system's.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Waits until all that was written is on the disk.
    ///
    /// # Errors
    ///
    /// The system's. Afterwards nobody knows what is on the disk.
    fn sync(&self) -> io::Result<()>;
}

/// A file of this machine. A lock that it has ends when it is dropped.
#[derive(Debug)]
pub struct LocalFile {
    file: fs::File,
    /// How many forks lie before the process that has locked it; set once, by [`File::lock`].
    locked: OnceLock<u64>,
}

impl From<fs::File> for LocalFile {
    fn from(file: fs::File) -> Self {
        Self { file, locked: OnceLock::new() }
    }
}

impl Drop for LocalFile {
    /// Closing the descriptor would leave the lock with the copies that forked children have. A child itself must not
    /// unlock: the lock is its parent's.
    fn drop(&mut self) {
        if self.locked.get() == Some(&process::fork_generation()) {
            // An error leaves the lock to the descriptors, as closing does.
            let _ = ropewalk_os::file::unlock(self.file.as_fd());
        }
    }
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

/// Bits of a file's mode: its group or others may write it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

impl Disk for LocalDisk {
    type File = LocalFile;
    type Folder = fs::File;

    fn open(&self, path: &Path, make: bool) -> io::Result<LocalFile> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create(make).truncate(false).mode(0o600).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        if found.uid() != process::user() || found.mode() & WRITABLE_BY_OTHERS != 0 {
            let (owner, mode) = (found.uid(), found.mode() & 0o777);
            let why = format!(
                "other users may write it (owner {owner}, mode {mode:03o}), and what it holds would be run as this user"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(file.into())
    }

    fn create(&self, path: &Path) -> io::Result<LocalFile> {
        let busy =
            || io::Error::new(io::ErrorKind::ResourceBusy, "another process is making a file beside it");
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) => {
                // A file that cannot be opened is no draft of this user.
                if found.is_file()
                    && let Ok(stale) = fs::File::open(path)
                    && LocalFile::from(stale).lock()?.is_err()
                {
                    return Err(busy());
                }
                // This removes a link, and not what it leads to.
                match fs::remove_file(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed?,
                }
            }
        }
        // O_CREAT with O_EXCL: it follows no link, and opens no file that somebody else has made meanwhile.
        let made = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = LocalFile::from(made?);
        if file.lock()?.is_err() { Err(busy()) } else { Ok(file) }
    }

    fn is_at(&self, file: &LocalFile, path: &Path) -> io::Result<bool> {
        let ours = file.file.metadata()?;
        match fs::metadata(path) {
            Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn folder(&self, path: &Path) -> io::Result<fs::File> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))
    }

    fn sync_folder(&self, folder: &fs::File) -> io::Result<()> {
        folder.sync_all()
    }

    fn number(&self) -> u64 {
        process::random()
    }
}

impl File for LocalFile {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        let file = self.file.as_fd();
        if ropewalk_os::file::try_lock(file)? {
            self.locked.get_or_init(process::fork_generation);
            return Ok(Ok(()));
        }
        Ok(Err(ropewalk_os::file::lock_holder(file).unwrap_or(0)))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(to, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        ropewalk_os::file::allocate(self.file.as_fd(), from, to.saturating_sub(from))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A borrowed file is a file.
impl<F: File> File for &F {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        (**self).lock()
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(to, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        (**self).write_at(bytes, offset)
    }

    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        (**self).extend(from, to)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        (**self).truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }
}

/// Reads until the buffer is full, or the file ends; gives how many bytes there were.
pub(crate) fn read_whole(file: &impl File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of it.
pub(crate) fn write_whole(file: &impl File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
