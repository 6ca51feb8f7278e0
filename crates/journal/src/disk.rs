//! What a journal needs of a disk, and the disk of this machine.
//!
//! The trait is the seam at which the tests put a simulated disk. It promises what POSIX promises, and no more: what
//! was written is on the disk only after [`File::sync`]; until then any part of it may be there after a crash, in any
//! order; a name is on the disk after [`Disk::sync_folder`].

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Where journals are.
pub trait Disk: Send + Sync + 'static {
    /// A file of this disk.
    type File: File + 'static;

    /// Opens a file to read and to write. `None` if it does not exist and is not to be made.
    ///
    /// # Errors
    ///
    /// The system's, or `PermissionDenied` for a file that other users may write.
    fn open(&self, path: &Path, make: bool) -> io::Result<Option<Self::File>>;

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

    /// Waits until the names in the folder of this file are on the disk.
    ///
    /// # Errors
    ///
    /// The system's.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

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

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

/// Bits of a file's mode: its group or others may write it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

impl Disk for LocalDisk {
    type File = fs::File;

    fn open(&self, path: &Path, make: bool) -> io::Result<Option<fs::File>> {
        let mut options = fs::OpenOptions::new();
        let opened = options.read(true).write(true).create(make).truncate(false).mode(0o600).open(path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !make => return Ok(None),
            opened => opened?,
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        if found.uid() != ropewalk_os::process::user() || found.mode() & WRITABLE_BY_OTHERS != 0 {
            let (owner, mode) = (found.uid(), found.mode() & 0o777);
            let why = format!(
                "other users may write it (owner {owner}, mode {mode:03o}), and what it holds would be run as this user"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Some(file))
    }

    fn is_at(&self, file: &fs::File, path: &Path) -> io::Result<bool> {
        let ours = file.metadata()?;
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

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn number(&self) -> u64 {
        ropewalk_os::process::random()
    }
}

impl File for fs::File {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        if ropewalk_os::file::try_lock(self.as_fd())? {
            return Ok(Ok(()));
        }
        Ok(Err(ropewalk_os::file::lock_holder(self.as_fd()).unwrap_or(0)))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, to, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        ropewalk_os::file::allocate(self.as_fd(), from, to.saturating_sub(from))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
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
