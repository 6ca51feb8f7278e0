//! What a code says of itself, and which code a failed system call has.

use crate::entry::ENOMEM;
use crate::table::Code;

impl Code {
    /// The stable text.
    pub fn as_str(self) -> &'static str {
        self.entry().code
    }

    /// What to try, in a sentence or two.
    pub fn remedy(self) -> &'static str {
        self.entry().remedy
    }

    /// The code for a system call that failed.
    ///
    /// `ENOMEM` and `ENOSPC` mean that there is no room for our memory. `fork` and `clone` report `EAGAIN` at the limit
    /// of processes. Sockets report it too, but callers of sockets handle it and never make an [`Error`](crate::Error)
    /// of it.
    pub(crate) fn of_system(error: &std::io::Error) -> Self {
        let number = match error.raw_os_error() {
            // A size that no `off_t` can hold is refused before the system sees it.
            None if error.kind() == std::io::ErrorKind::OutOfMemory => Some(ENOMEM),
            number => number,
        };
        // The first row that has the number: `OutOfPorts` carries one that stands for memory.
        let has = |code: &&Self| code.entry().numbers.iter().any(|&(_, known)| Some(known) == number);
        Self::ALL.iter().find(has).copied().unwrap_or(Self::SystemCallFailed)
    }
}
