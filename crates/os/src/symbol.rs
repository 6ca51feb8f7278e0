//! Functions of the program that not every program has.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// The address of a symbol that the program, or a library which it was linked to, exports.
pub fn find(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string; the call changes nothing but the thread's own error text.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_found() {
        assert!(find(c"getpid").is_some());
        assert!(find(c"no_library_exports_this").is_none());
    }
}
