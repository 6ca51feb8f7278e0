//! A unix socket: its file belongs to this server alone, and only its user may connect.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener as Plain, UnixStream as Probe};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_os::file::{try_lock, unlock};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Who may connect, and hold the lock: the server's user.
const MODE: u32 = 0o600;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// How long other servers may hold the lock, which open a socket at the same path.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Before the listener, which is closed after it: another server finds no dead socket meanwhile.
    file: SocketFile,
    listener: UnixListener,
}

/// The file of a socket that listens. It is removed with this, unless another has taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The file's device and number.
    own: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.own) {
            // What cannot be removed is found to be dead by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn wrong(path: &Path, kind: ErrorKind, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(kind, format!("the socket {:?} {what}", path.display()))
}

impl Socket {
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// The listener for another one's loop, and its file.
    pub(crate) fn into_parts(self) -> io::Result<(Plain, SocketFile)> {
        Ok((self.listener.into_std()?, self.file))
    }
}

/// Opens the socket. It must be called within a runtime.
///
/// # Errors
///
/// When another server listens there, or the path is none for a socket.
pub(crate) fn open(path: &Path) -> io::Result<Socket> {
    let refused = |error: io::Error| wrong(path, error.kind(), format_args!("cannot be opened: {error}"));
    // Of two servers that find a dead socket, one would remove the other's.
    let _lock = Lock::take(path).map_err(refused)?;
    remove_dead(path)?;
    let socket = UnixSocket::new_stream().map_err(refused)?;
    socket.bind(path).map_err(refused)?;
    let bound = fs::symlink_metadata(path).map_err(refused)?;
    // The mode that it has so far depends on the process's umask, which belongs to all its threads. It does not matter:
    // until the socket listens, every connection is refused.
    fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(refused)?;
    let listener = socket.listen(BACKLOG).map_err(refused)?;
    let file = SocketFile { path: path.to_owned(), own: (bound.dev(), bound.ino()) };
    Ok(Socket { file, listener })
}

/// The right to open a socket at a path, until this is dropped. It is a file beside the socket, which only the user may
/// open: the folder itself can be locked by every user who can read it. It is there as long as the lock is held.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn take(socket: &Path) -> io::Result<Self> {
        let mut name = OsString::from(".");
        name.push(socket.file_name().unwrap_or_default());
        name.push(".lock");
        let path = socket.with_file_name(name);
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(file) = Self::open(&path)?
                && try_lock(file.as_fd())?
            {
                // A server that had the lock before has removed the file, perhaps since this one has opened it.
                let own = file.metadata()?;
                let is_there = |found: Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
                if fs::symlink_metadata(&path).is_ok_and(is_there) {
                    return Ok(Self { file, path });
                }
            }
            if Instant::now() >= end {
                let text = format!("another process holds its lock, {:?}", path.display());
                return Err(io::Error::new(ErrorKind::WouldBlock, text));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The file, which is made if it is not there. `None` if it has come or gone meanwhile.
    fn open(path: &Path) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // It follows no link.
        match options.clone().create_new(true).mode(MODE).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(Some),
        }
        let gone = |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) };
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => options.open(path).map(Some).or_else(gone),
            Ok(_) => {
                let text = format!("its lock, {:?}, is no file", path.display());
                Err(io::Error::new(ErrorKind::AlreadyExists, text))
            }
            Err(error) => gone(error),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The next server makes its own: what cannot be removed is locked again.
        let _ = fs::remove_file(&self.path);
        // Of a forked child, too, which would hold it for longer.
        let _ = unlock(self.file.as_fd());
    }
}

/// Removes the file of a socket at which no process listens.
fn remove_dead(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            return Err(wrong(
                path,
                ErrorKind::AlreadyExists,
                "cannot be opened: there is a file that is none",
            ));
        }
        Err(error) => return Err(wrong(path, error.kind(), format_args!("cannot be opened: {error}"))),
    }
    match Probe::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(wrong(path, error.kind(), format_args!("cannot be looked at: {error}"))),
        Ok(_) => Err(wrong(path, ErrorKind::AddrInUse, "is taken: another server listens there")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;

    use super::*;

    /// A folder that is gone after the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ropewalk-socket-{name}-{}", std::process::id()));
            DirBuilder::new().create(&path).expect("a folder");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn only_the_user_may_connect_and_the_file_goes_with_the_server() {
        let folder = Folder::new("mode");
        let path = folder.0.join("s");
        let socket = open(&path).expect("opened");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, MODE);
        let error = open(&path).expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert!(Probe::connect(&path).is_ok());
        let names: Vec<_> = fs::read_dir(&folder.0).expect("a folder").collect();
        assert_eq!(names.len(), 1, "the lock is gone: {names:?}");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn another_user_cannot_lock_a_server_out() {
        let folder = Folder::new("lock");
        let path = folder.0.join("s");
        // Every user who can read the folder can do that.
        let held = File::open(&folder.0).expect("a folder");
        assert!(try_lock(held.as_fd()).expect("locked"));
        drop(open(&path).expect("opened"));
        let lock = Lock::take(&path).expect("taken");
        assert_eq!(fs::metadata(&lock.path).expect("a file").permissions().mode() & 0o777, MODE);
        // A link in its place is not followed.
        let at = lock.path.clone();
        drop(lock);
        std::os::unix::fs::symlink(folder.0.join("target"), &at).expect("a link");
        let error = open(&path).expect_err("refused").to_string();
        assert!(error.contains("is no file"), "{error}");
        assert!(!folder.0.join("target").exists());
    }

    #[tokio::test]
    async fn one_server_at_a_time_has_the_lock() {
        let folder = Folder::new("turns");
        let (path, held) = (folder.0.join("s"), std::sync::atomic::AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let lock = Lock::take(&path).expect("its turn comes");
                        assert!(!held.swap(true, std::sync::atomic::Ordering::SeqCst), "two have it");
                        thread::yield_now();
                        held.store(false, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_its_late_owner_removes_nothing() {
        let folder = Folder::new("dead");
        let path = folder.0.join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        let late = open(&path).expect("opened");
        fs::remove_file(&path).expect("removed");
        let socket = open(&path).expect("opened again");
        drop(late);
        assert!(Probe::connect(&path).is_ok());
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let folder = Folder::new("file");
        let path = folder.0.join("s");
        fs::write(&path, "precious").expect("written");
        let error = open(&path).expect_err("refused");
        assert!(error.to_string().contains("there is a file that is none"), "{error}");
        assert_eq!(fs::read(&path).expect("read"), b"precious");
        for wrong in [folder.0.join("none").join("s"), folder.0.join("x".repeat(200))] {
            let error = open(&wrong).expect_err("refused").to_string();
            assert!(error.starts_with("the socket \"/"), "{error}");
        }
    }
}
