//! A queue's entry: anything that runs once, in three words.
//!
//! Most closures that are handed to an executor capture a pointer or two. Boxed, each would be allocated by one thread
//! and freed by another, which is what allocators are worst at: it took over half of the time of an empty job. So a
//! closure that fits into two words is stored in the entry, and only a larger one is boxed.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::any::{Any, type_name};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::panic::contain;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ran {
    /// It ran to its end.
    Done,
    /// It panicked; the context has got the report.
    Panicked,
    /// It did not run here: it was cancelled, or a thread that joined it has run it.
    Skipped,
}

/// The thread that runs a job, as the job's wrapper sees it.
pub(crate) trait Context {
    /// Reports a panic. Does not panic itself.
    fn panicked(&self, job: &'static str, payload: &(dyn Any + Send));
}

/// The context of a job that no executor runs.
pub(crate) struct Unobserved;

impl Context for Unobserved {
    fn panicked(&self, _job: &'static str, _payload: &(dyn Any + Send)) {}
}

/// A job's name, as a function: a type's name is no constant.
pub(crate) type Label = fn() -> &'static str;

/// Something that runs once, or never if it is dropped.
pub(crate) trait Runnable: Send + 'static {
    fn run(self, context: &dyn Context) -> Ran;

    /// The job's name in reports.
    fn name() -> &'static str;

    /// Called before the job is queued on the pool with this identity.
    fn bind(&self, home: usize);
}

type Content = [MaybeUninit<usize>; 2];

/// A [`Runnable`] of any type.
pub(crate) struct Work {
    /// A valid value of the type that `table` was made for; this owns it.
    content: Content,
    table: &'static Table,
}

/// The operations on the content of one type. Each pointer is to the content of a `Work` with this table; `run` and
/// `drop` move the value out of it.
struct Table {
    run: unsafe fn(*mut Content, &dyn Context) -> Ran,
    drop: unsafe fn(*mut Content),
    bind: unsafe fn(*const Content, usize),
    name: Label,
}

struct TableOf<R>(R);

impl<R: Runnable> TableOf<R> {
    const TABLE: Table = Table {
        // SAFETY: the caller's content is a value of `R`; it is read once and not used again.
        run: |content, context| unsafe { content.cast::<R>().read() }.run(context),
        // SAFETY: as above.
        drop: |content| unsafe { ptr::drop_in_place(content.cast::<R>()) },
        // SAFETY: the caller's content is a value of `R`.
        bind: |content, home| unsafe { &*content.cast::<R>() }.bind(home),
        name: R::name,
    };

    const FITS: bool = size_of::<R>() <= size_of::<Content>() && align_of::<R>() <= align_of::<Content>();
}

// SAFETY: it owns a value whose type is `Send`, because `Runnable` requires it, and otherwise only refers to a static.
unsafe impl Send for Work {}

impl Work {
    pub(crate) fn new<R: Runnable>(runnable: R) -> Self {
        if TableOf::<R>::FITS { Self::holding(runnable) } else { Self::holding(Box::new(runnable)) }
    }

    fn holding<R: Runnable>(runnable: R) -> Self {
        assert!(TableOf::<R>::FITS, "a box fits, and `new` has looked at the others");
        let mut content: Content = [MaybeUninit::uninit(); 2];
        // SAFETY: a value of `R` fits, in size and alignment.
        unsafe { content.as_mut_ptr().cast::<R>().write(runnable) };
        Self { content, table: &TableOf::<R>::TABLE }
    }

    /// Runs it; its panics go to the context.
    pub(crate) fn run(self, context: &dyn Context) -> Ran {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the content is valid and of the table's type; it is moved out here, and `drop` will not run.
        unsafe { (this.table.run)(&raw mut this.content, context) }
    }

    /// The function that returns the job's name.
    pub(crate) fn label(&self) -> &'static Label {
        &self.table.name
    }

    /// Announces that the job is about to be queued on the pool with this identity: from now on a worker of that pool
    /// that joins the job may run it.
    pub(crate) fn bind(&self, home: usize) {
        // SAFETY: the content is valid and of the table's type.
        unsafe { (self.table.bind)(&raw const self.content, home) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: the content is valid, of the table's type, and not used again.
        unsafe { (self.table.drop)(&raw mut self.content) }
    }
}

/// A larger job, behind a pointer.
impl<R: Runnable> Runnable for Box<R> {
    fn run(self, context: &dyn Context) -> Ran {
        (*self).run(context)
    }

    fn name() -> &'static str {
        R::name()
    }

    fn bind(&self, home: usize) {
        (**self).bind(home);
    }
}

/// A closure without a handle.
pub(crate) struct Plain<F>(pub(crate) F);

impl<F: FnOnce() + Send + 'static> Runnable for Plain<F> {
    fn run(self, context: &dyn Context) -> Ran {
        match catch_unwind(AssertUnwindSafe(self.0)) {
            Ok(()) => Ran::Done,
            Err(payload) => {
                context.panicked(Self::name(), &*payload);
                contain(|| drop(payload));
                Ran::Panicked
            }
        }
    }

    fn name() -> &'static str {
        type_name::<F>()
    }

    fn bind(&self, _home: usize) {}
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Quiet;

    impl Context for Quiet {
        fn panicked(&self, _job: &'static str, _payload: &(dyn std::any::Any + Send)) {}
    }

    #[test]
    fn work_is_three_words() {
        assert_eq!(size_of::<Work>(), 3 * size_of::<usize>());
        assert_eq!(size_of::<Option<Work>>(), 3 * size_of::<usize>());
    }

    /// Small, large, overaligned and empty closures, run and dropped; Miri checks their memory accesses.
    #[test]
    fn what_is_captured_is_dropped_once_whether_it_is_run_or_not() {
        #[repr(align(64))]
        struct Aligned(u8);
        let kept = Arc::new(());
        let make = || {
            let (one, two, three) = (Arc::clone(&kept), Arc::clone(&kept), Arc::clone(&kept));
            let (large, aligned) = ([7_u64; 9], Aligned(8));
            [
                Work::new(Plain(move || drop(one))),
                Work::new(Plain(move || assert_eq!((large.len(), Arc::strong_count(&two) > 0), (9, true)))),
                Work::new(Plain(move || assert!(aligned.0 == 8 && Arc::strong_count(&three) > 0))),
                Work::new(Plain(|| {})),
            ]
        };
        drop(make());
        assert_eq!(Arc::strong_count(&kept), 1);
        for work in make() {
            assert!((work.label())().contains("what_is_captured"));
            work.bind(1);
            assert_eq!(work.run(&Quiet), Ran::Done);
        }
        assert_eq!(Arc::strong_count(&kept), 1);
        let panics = Arc::clone(&kept);
        let work = Work::new(Plain(move || panic!("with {panics:?}")));
        assert_eq!(work.run(&Quiet), Ran::Panicked);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
