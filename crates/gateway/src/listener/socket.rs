//! The unix socket: its file belongs to this server alone, and only its user may connect.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_os::file::try_lock;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Who may connect: the server's user.
const MODE: u32 = 0o600;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// How long the folder may be locked by other servers that open their sockets.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket that listens. Its file is removed with it, unless another has taken its place.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The file's device and number.
    own: (u64, u64),
}

impl Drop for Socket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.own) {
            // What cannot be removed is found to be dead by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn wrong(path: &Path, kind: ErrorKind, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(kind, format!("unix: the socket {:?} {what}", path.display()))
}

impl Socket {
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

/// Opens the socket. It must be called within a runtime.
///
/// # Errors
///
/// When another server listens there, or the path is none for a socket.
pub(super) fn open(path: &Path) -> io::Result<Socket> {
    let refused = |error: io::Error| wrong(path, error.kind(), format_args!("cannot be opened: {error}"));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder).map_err(refused)?;
    // Of two servers that find a dead socket, one would remove the other's.
    let end = Instant::now() + PATIENCE;
    while !try_lock(folder.as_fd()).map_err(refused)? {
        if Instant::now() >= end {
            return Err(wrong(
                path,
                ErrorKind::WouldBlock,
                "cannot be opened: another process locks its folder",
            ));
        }
        thread::sleep(Duration::from_millis(5));
    }
    remove_dead(path)?;
    let socket = UnixSocket::new_stream().map_err(refused)?;
    socket.bind(path).map_err(refused)?;
    let bound = fs::symlink_metadata(path).map_err(refused)?;
    // The mode that it has so far depends on the process's umask, which belongs to all its threads. It does not matter:
    // until the socket listens, every connection is refused.
    fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(refused)?;
    let listener = socket.listen(BACKLOG).map_err(refused)?;
    Ok(Socket { listener, path: path.to_owned(), own: (bound.dev(), bound.ino()) })
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
        drop(socket);
        assert!(!path.exists());
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
            assert!(error.starts_with("unix: the socket \"/"), "{error}");
        }
    }
}
