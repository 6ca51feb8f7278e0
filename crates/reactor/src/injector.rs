//! A queue that any thread may push to and one thread empties.
//!
//! A stack that is taken as a whole and turned round, so that there is no ABA problem and no node is ever read by two
//! threads. Nodes bring their own link: a push allocates nothing and is one compare-and-swap.
//!
//! Source: R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use ropewalk_sync::atomic::{AtomicPtr, Ordering};

/// The place in a node that holds it in a queue. Written by the thread that pushes the node, before others can see
/// it; afterwards by the thread that has taken it.
#[derive(Debug)]
pub struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    /// In no queue.
    pub fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// What has a link.
///
/// # Safety
///
/// `link` gives the same link of a node each time.
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
    /// The node pushed last, or null. `Release` by whoever pushes hands its node over; `Acquire` by whoever takes.
    head: AtomicPtr<T>,
}

impl<T: Linked> Injector<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Hands a node over. The caller makes sure that the taker is awake, see [`Wake`](crate::Wake).
    ///
    /// # Safety
    ///
    /// The node is live until it is taken, in no queue, and nobody touches its link meanwhile.
    pub unsafe fn push(&self, node: NonNull<T>) {
        // SAFETY: the caller's.
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

    /// Whether there was nothing to take a moment ago.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// What waits to be taken, newest first, and stays there.
    ///
    /// # Safety
    ///
    /// Nobody takes while the nodes are looked at.
    pub unsafe fn nodes(&self) -> impl Iterator<Item = NonNull<T>> {
        let mut next = self.head.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let node = NonNull::new(next)?;
            // SAFETY: the node was pushed and nobody takes it, so it is live, and its link is not written.
            next = unsafe { T::link(node) }.0.load(Ordering::Relaxed);
            Some(node)
        })
    }

    /// Takes everything, in the order in which it was pushed.
    pub fn take(&self) -> Chain<T> {
        let mut rest = if self.is_empty() {
            ptr::null_mut()
        } else {
            self.head.swap(ptr::null_mut(), Ordering::Acquire)
        };
        let mut turned = ptr::null_mut();
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: the node was pushed, is live by the promise of `push`, and is ours alone since the swap.
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

/// Nodes that were taken, oldest first. A node's link is free again when it has come out.
#[derive(Debug)]
pub struct Chain<T: Linked> {
    next: *mut T,
    nodes: PhantomData<T>,
}

impl<T: Linked> Iterator for Chain<T> {
    type Item = NonNull<T>;

    fn next(&mut self) -> Option<NonNull<T>> {
        let node = NonNull::new(self.next)?;
        // SAFETY: as of `take`; it is let go only below.
        self.next = unsafe { T::link(node) }.0.load(Ordering::Relaxed);
        Some(node)
    }
}
