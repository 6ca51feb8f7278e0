//! Coded errors: what failed, why, and what to try.
//!
//! An [`Error`] is one pointer wide, so a `Result` stays small on its way up. The parts of an error are behind the
//! pointer and are made only when something fails; [`error!`] with a literal message does not allocate even then,
//! because it points to a static.

#![deny(unsafe_code)]

mod code;
mod context;
pub mod entry;
#[doc(hidden)]
pub mod error;
mod table;

pub use context::{OptionExt, ResultExt};
pub use error::{Error, Result};
pub use table::Code;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn system_errors_are_sorted_by_number() {
        for (number, code) in [
            (12, Code::OutOfMemory),
            (28, Code::OutOfMemory),
            (23, Code::OutOfDescriptors),
            (24, Code::OutOfDescriptors),
            (11, Code::OutOfProcesses),
            (27, Code::FileSizeExceeded),
            (38, Code::Unsupported),
            (1, Code::SystemCallFailed),
        ] {
            let failed: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(number));
            let error = failed.context("it failed").context("so this failed").expect_err("it failed");
            assert_eq!((error.code(), error.os_error()), (code, Some(number)));
        }
        assert_eq!(error!(Code::ZygoteFailed, "it is gone").os_error(), None);
    }

    #[test]
    fn codes_are_unique_and_say_what_to_try() {
        let texts: std::collections::HashSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| code.remedy().ends_with('.')));
    }

    #[test]
    fn a_literal_message_is_static_and_others_are_boxed() {
        let fixed = || error!(Code::ZygoteFailed, "it is gone");
        let (one, two) = (fixed(), fixed());
        assert_eq!(
            (one.code(), one.module(), one.remedy()),
            (Code::ZygoteFailed, module_path!(), Code::ZygoteFailed.remedy())
        );
        let boxed = Error::new(Code::ZygoteFailed, String::from("it is gone"));
        assert_eq!((boxed.to_string(), boxed.module()), (one.to_string(), file!()));
        // Both kinds are dropped here, and moved to other threads.
        std::thread::spawn(move || drop((one, boxed))).join().expect("no panic");
        drop(two);
    }

    #[test]
    fn a_chain_goes_down_to_the_first_cause() {
        let failed: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(24));
        let error = failed
            .context("could not open")
            .with_context(|| format!("could not start {}", "it"))
            .expect_err("it failed");
        assert_eq!(error.code(), Code::OutOfDescriptors);
        let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
        assert_eq!(texts[..2], ["could not start it", "could not open"]);
        assert_eq!(texts.len(), 3);
        assert_eq!(error.module(), file!());
        let missing = None::<u8>.or_error(Code::StaleHandle, "it is not there").expect_err("nothing");
        assert_eq!(
            format!("{missing:?}").split(" [").nth(1),
            Some(&*format!("RW-SHM-STALE in {}]", file!()))
        );
    }

    #[test]
    fn a_report_tells_message_cause_and_remedy() {
        let failed: std::io::Result<()> = Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        let error = failed.context("could not make a segment").expect_err("it failed");
        assert_eq!(error.code(), Code::OutOfMemory);
        let report = error.report();
        assert!(report.starts_with("could not make a segment: "), "{report}");
        assert!(report.ends_with("raise the memory limit."), "{report}");
    }
}
