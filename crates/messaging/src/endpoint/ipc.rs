//! `ipc://` and `shm://`: files and abstract names.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::PathBuf;

use ropewalk_os::net::UnixName;

use super::malformed;
use crate::error::{Error, Result, errno};

/// A name within this host. It displays as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IpcEndpoint {
    /// A file.
    Path(PathBuf),
    /// `@name`: no file, and gone with its last user.
    Abstract(String),
    /// `*`: a new file, in a directory of its own.
    Temporary,
}

/// A name to listen on; dropping it removes what was made for it.
///
/// The file of a path that the program chose stays, as libzmq has it: another process may have taken it over.
#[derive(Debug)]
pub struct IpcName {
    name: UnixName,
    directory: Option<PathBuf>,
}

impl IpcEndpoint {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let name = text.strip_prefix('@');
        if text.contains('\0') || name == Some("") {
            return Err(malformed(text, "after ipc:// or shm:// comes a path, @ and a name, or *"));
        }
        if name.unwrap_or(text).len() > UnixName::MOST {
            let most = UnixName::MOST;
            return Err(Error::new(
                errno::ENAMETOOLONG,
                format!("{text:?} is longer than {most} bytes: use a shorter path, or a relative one"),
            ));
        }
        Ok(match name {
            Some(name) => Self::Abstract(name.to_owned()),
            None if text == "*" => Self::Temporary,
            None => Self::Path(text.into()),
        })
    }

    /// The name to connect to.
    ///
    /// # Errors
    ///
    /// `EINVAL` for `*`.
    pub fn connect_name(&self) -> Result<UnixName> {
        match self {
            Self::Path(path) => Ok(UnixName::Path(path.clone())),
            Self::Abstract(name) => Ok(UnixName::Abstract(name.as_bytes().to_vec())),
            Self::Temporary => Err(malformed("*", "a connect needs a name")),
        }
    }

    /// The name to listen on. A socket that is left at the path is removed, as libzmq does, even if another process
    /// still listens on it; any other file stays, and the bind will fail. If the program gives the descriptor
    /// ([`USE_FD`](crate::option::USE_FD)), the file is that descriptor's, and stays.
    ///
    /// # Errors
    ///
    /// What the system refuses to make or to remove.
    pub fn bind_name(&self, is_given: bool) -> Result<IpcName> {
        let name = match self {
            Self::Temporary => return temporary(),
            Self::Abstract(name) => UnixName::Abstract(name.as_bytes().to_vec()),
            Self::Path(path) => {
                if !is_given && fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
                    match fs::remove_file(path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                        _ => {}
                    }
                }
                UnixName::Path(path.clone())
            }
        };
        Ok(IpcName { name, directory: None })
    }
}

impl fmt::Display for IpcEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(formatter, "{}", path.display()),
            Self::Abstract(name) => write!(formatter, "@{name}"),
            Self::Temporary => formatter.write_str("*"),
        }
    }
}

impl IpcName {
    /// The name.
    pub fn name(&self) -> &UnixName {
        &self.name
    }
}

impl Drop for IpcName {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            if let UnixName::Path(path) = &self.name {
                let _ = fs::remove_file(path);
            }
            // Only if it is empty, so that no file of others is removed.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// A name in a new directory, which only this user may enter.
fn temporary() -> Result<IpcName> {
    let parent = std::env::temp_dir();
    loop {
        // Random enough not to collide often; the system refuses to make the directory twice, so it is ours.
        let directory =
            parent.join(format!("ropewalk-{:016x}", RandomState::new().hash_one(std::process::id())));
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => {
                let path = directory.join("socket");
                let name = IpcName { name: UnixName::Path(path.clone()), directory: Some(directory) };
                if path.as_os_str().len() > UnixName::MOST {
                    return Err(Error::new(
                        errno::ENAMETOOLONG,
                        format!("{} is too long for a socket: set TMPDIR to a shorter path", path.display()),
                    ));
                }
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
}
