//! What `ps` and `top` show of this process: its name, and its command line.
//!
//! The name is the kernel's own (15 bytes). The command line lies in this process's memory, where the kernel put the
//! arguments at `exec`; a title overwrites them. So it is no longer than they were, and the environment, which lies
//! behind them, is left alone.
//!
//! Source: `PR_SET_NAME` in prctl(2); `arg_start` and `arg_end` in proc_pid_stat(5). `PR_SET_MM_ARG_START` would take a
//! title of any length, but needs `CAP_SYS_RESOURCE`.

use std::io;
use std::sync::OnceLock;

use crate::call::check;

/// Bytes of a name that the kernel keeps, its end included.
const NAME: usize = 16;
/// Places of `arg_start` and `arg_end` behind the process's state, which is field 3.
const ARG_START: usize = 48 - 3;

/// Where the arguments lie: the first address, and the number of bytes. A fork inherits them where they were.
static ARGUMENTS: OnceLock<Option<(usize, usize)>> = OnceLock::new();

/// Sets the name of the calling thread, which is the process's if it is the first; what is too long is cut off.
///
/// # Errors
///
/// None on any kernel that has the call.
pub fn set_name(name: &str) -> io::Result<()> {
    let mut bytes = [0_u8; NAME];
    let name = cut(name, NAME - 1);
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the kernel copies at most 16 bytes of a live array, which ends with a zero.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) }).map(drop)
}

/// As many whole characters of a text as so many bytes hold.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// Where this process's arguments lie, as the kernel says; `None` if it does not.
fn find_arguments() -> Option<(usize, usize)> {
    let stat = std::fs::read("/proc/self/stat").ok()?;
    let fields = str::from_utf8(stat.rsplit(|byte| *byte == b')').next()?).ok()?;
    let mut fields = fields.split_ascii_whitespace().skip(ARG_START);
    let mut address = || fields.next()?.parse::<usize>().ok();
    let (start, end) = (address()?, address()?);
    // Zeros are the kernel's answer to those who may not know.
    (start != 0 && end > start).then(|| (start, end - start))
}

/// Overwrites this process's command line; what is too long is cut off. False if the kernel does not say where it lies.
///
/// Call it while the process has one thread: another thread that reads the arguments meanwhile sees a mixture.
pub fn set_title(title: &str) -> bool {
    let Some((start, length)) = *ARGUMENTS.get_or_init(find_arguments) else { return false };
    let title = cut(title, length - 1);
    let area = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the kernel says where the arguments lie. exec made that memory for this program alone, writable, and it
    // stays for as long as the process. The title fits. No reference of Rust's covers the memory: the standard library
    // reads arguments through pointers, and copies them.
    unsafe {
        std::ptr::copy_nonoverlapping(title.as_ptr(), area, title.len());
        std::ptr::write_bytes(area.add(title.len()), 0, length - title.len());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child of this test's that has only its own thread, so that no other test sees the title.
    fn in_child(check: fn() -> bool) -> bool {
        // SAFETY: the child reads and writes files, allocates (glibc repairs its allocator after a fork) and exits.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(i32::from(!check()));
            }
            let mut status = -1;
            libc::waitpid(pid, &raw mut status, 0) == pid && status == 0
        }
    }

    #[test]
    fn a_title_is_what_the_kernel_shows() {
        assert!(in_child(|| {
            let environment = std::fs::read("/proc/self/environ").ok();
            let titled = set_title("a title é");
            let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
            let text = line.split(|byte| *byte == 0).next().unwrap_or_default();
            // A test binary may have been started with fewer bytes than the title has.
            let whole = "a title é".as_bytes();
            titled
                && !text.is_empty()
                && whole.starts_with(text)
                && std::fs::read("/proc/self/environ").ok() == environment
        }));
    }

    #[test]
    fn a_title_is_cut_to_the_room_that_the_arguments_had() {
        assert!(in_child(|| {
            let before = std::fs::read("/proc/self/cmdline").unwrap_or_default().len();
            let titled = set_title(&"long ".repeat(100_000));
            let after = std::fs::read("/proc/self/cmdline").unwrap_or_default();
            titled && after.len() == before && after.last() == Some(&0)
        }));
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert!(in_child(|| {
            let name = || std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
            set_name("worker 3").is_ok()
                && name() == "worker 3\n"
                && set_name("fourteen bytesé").is_ok()
                && name() == "fourteen bytes\n"
        }));
    }
}
