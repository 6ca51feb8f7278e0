//! A queue that any thread may push to and one thread empties.
//!
//! A stack that is taken as a whole and reversed, so there is no ABA problem and no two threads read a node. Nodes
//! bring their own link: a push allocates nothing and is one compare-and-swap.
//!
//! Source: R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use ropewalk_sync::atomic::{AtomicPtr, Ordering};

/// A node's link to the next one in a queue. Written by the thread that pushes the node, before others can see it;
/// afterwards by the thread that has taken it.
#[derive(Debug)]
pub struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    /// A link of a node in no queue.
    pub fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A node that has a link.
///
/// # Safety
///
/// `link` returns the same link of a node each time.
pub unsafe trait Linked {
    /// The node's link.
    ///
    /// # Safety
    ///
    /// The node is live, and stays so while the reference is used.
    unsafe fn link<'a>(node: NonNull<Self>) -> &'a Link<Self>
    where
        Self: Sized;
}

/// See the module.
#[derive(Debug)]
pub struct Injector<T: Linked> {
    /// The node pushed last, or null. `Release` by the thread that pushes publishes its node to the `Acquire` of the
    /// thread that takes.
    head: AtomicPtr<T>,
}

impl<T: Linked> Injector<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes a node. The caller wakes the taker, see [`Wake`](crate::Wake).
    ///
    /// # Safety
    ///
    /// The node is in no queue, stays live until it is taken, and no other code touches its link meanwhile.
    pub unsafe fn push(&self, node: NonNull<T>) {
        // SAFETY: the caller guarantees that the node is live.
        let link = unsafe { T::link(node) };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.0.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether the queue was empty a moment ago.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// The waiting nodes, newest first; they stay in the queue.
    ///
    /// # Safety
    ///
    /// No thread takes nodes while the iterator is used.
    pub unsafe fn nodes(&self) -> impl Iterator<Item = NonNull<T>> {
        let mut next = self.head.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let node = NonNull::new(next)?;
            // SAFETY: the node was pushed and no thread takes it, so it is live, and its link is not written.
            next = unsafe { T::link(node) }.0.load(Ordering::Relaxed);
            Some(node)
        })
    }

    /// Takes all nodes, in the order in which they were pushed.
    pub fn take(&self) -> Chain<T> {
        let mut rest = if self.is_empty() {
            ptr::null_mut()
        } else {
            self.head.swap(ptr::null_mut(), Ordering::Acquire)
        };
        let mut turned = ptr::null_mut();
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: the node was pushed, is live by the contract of `push`, and belongs to this thread alone since
            // the swap.
            let link = unsafe { T::link(node) };
            rest = link.0.load(Ordering::Relaxed);
            link.0.store(turned, Ordering::Relaxed);
            turned = node.as_ptr();
        }
        Chain { next: turned, nodes: PhantomData }
    }
}

impl<T: Linked> Default for Injector<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Nodes that were taken, oldest first. A node's link may be reused once the iterator has returned the node.
#[derive(Debug)]
pub struct Chain<T: Linked> {
    next: *mut T,
    nodes: PhantomData<T>,
}

impl<T: Linked> Iterator for Chain<T> {
    type Item = NonNull<T>;

    fn next(&mut self) -> Option<NonNull<T>> {
        let node = NonNull::new(self.next)?;
        // SAFETY: as in `take`; the node is released only below.
        self.next = unsafe { T::link(node) }.0.load(Ordering::Relaxed);
        Some(node)
    }
}
