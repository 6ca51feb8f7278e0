//! The items of a generator task, between the worker that makes them and the program that reads them.
//!
//! A worker may be a number of items, and of bytes, ahead of its reader: that is its *credit*. What the reader takes
//! raises it. So a stream that nobody reads stands still, and takes a bounded amount of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use ropewalk_base::{Code, Result, error};
use ropewalk_shm::memory::Segment;
use ropewalk_sync::Mutex;
use ropewalk_sync::futex::{Futex, Wait};

use crate::codec::Table;
use crate::locked::Opaque;
use crate::outcome::Failure;
use crate::pace::{Credit, Pace};
use crate::wire::flags;

/// Bytes of unread items from which on a worker makes no more of them. The last may take the sum beyond it, so that an
/// item of any size can pass.
pub const MOST_UNREAD_BYTES: u64 = 16 << 20;

/// What an item costs of the credit for bytes: its record, and what it refers to in segments.
pub fn cost(item_flags: u16, bytes: &[u8]) -> u64 {
    let beside = |table: Table<'_>| {
        let placed = table.entries().filter(|entry| entry.segment != 0);
        placed.fold(0, |sum: u64, entry| sum.saturating_add(entry.length))
    };
    let described = item_flags & flags::DESCRIBED != 0;
    let beside = if described { Table::parse(bytes).map_or(0, beside) } else { 0 };
    beside.saturating_add(bytes.len() as u64)
}

/// Items in the order in which they came.
#[derive(Debug, Default)]
pub struct Items {
    /// The records of all items, one after the other.
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// How many of the places have been read, and how many of the bytes.
    read: usize,
    read_bytes: usize,
}

/// Where an item lies.
#[derive(Debug)]
enum Place {
    /// `form` of `wire::form`, `flags` of `wire::flags`; the record ends here, and begins where the one before it ends.
    Record {
        form: u8,
        flags: u16,
        end: usize,
        segments: Vec<Arc<Segment>>,
        cost: u64,
    },
    Local {
        value: Opaque,
        cost: u64,
    },
    Lost {
        failure: Failure,
        cost: u64,
    },
}

/// An item that is taken.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record: its form (`wire::form`), its flags (`wire::flags`), its bytes, and the segments that they refer to.
    Record(u8, u16, &'a [u8], Vec<Arc<Segment>>),
    /// A value of this process.
    Local(Opaque),
    /// A limit of this process kept it from being received.
    Lost(Failure),
}

impl Items {
    /// Takes the next item, with its cost.
    pub fn take_next(&mut self) -> Option<(Item<'_>, u64)> {
        let place = self.places.get_mut(self.read)?;
        self.read += 1;
        Some(match place {
            Place::Record { form, flags, end, segments, cost } => {
                let begin = std::mem::replace(&mut self.read_bytes, *end);
                let bytes = self.bytes.get(begin..*end).unwrap_or_default();
                (Item::Record(*form, *flags, bytes, std::mem::take(segments)), *cost)
            }
            Place::Local { value, cost } => (Item::Local(value.take()), *cost),
            Place::Lost { failure, cost } => (Item::Lost(failure.clone()), *cost),
        })
    }

    /// The values of this process that are in it, for the layer above to show to its collector.
    pub fn local(&self) -> impl Iterator<Item = &Opaque> {
        self.places.iter().filter_map(|place| match place {
            Place::Local { value, .. } => Some(value),
            _ => None,
        })
    }

    fn is_empty(&self) -> bool {
        self.read == self.places.len()
    }

    /// Makes it empty, for the next items to use its memory.
    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        (self.read, self.read_bytes) = (0, 0);
    }
}

/// What both sides keep of a stream.
#[derive(Debug, Default)]
struct Inbox {
    items: Items,
    /// Items that have come, and their cost.
    came: Credit,
    /// Items that have been read, and their cost.
    read: Credit,
    /// What the worker may have sent in all.
    granted: Credit,
    /// The words of the lane that the task lies in.
    pace: Option<Pace>,
    /// The reader has left: what comes is dropped.
    closed: bool,
    /// A reader waits for a signal that something has come.
    wants_signal: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Stream {
    /// The items that may be unread.
    window: u64,
    inbox: Mutex<Inbox>,
    /// Whether there are unread items; written under the lock.
    has_unread: AtomicBool,
    /// Whether an item has ever come; written under the lock.
    began: AtomicBool,
    /// Changes when a sleeper must look again: its reader, or a thread of this process that makes items.
    word: Futex,
    /// Whether there may be a sleeper. One who will sleep sets it and looks once more; one who wakes clears it.
    sleeps: AtomicBool,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Arrived {
    /// It is there to be read, or nobody wants it any more.
    Quietly,
    /// The same, and a reader waits for a signal.
    Awaited,
}

impl Stream {
    pub(crate) fn new(window: u32) -> Self {
        let window = u64::from(window.max(1));
        let granted = Credit { items: window, bytes: MOST_UNREAD_BYTES };
        Self {
            window,
            inbox: Mutex::new(Inbox { granted, ..Inbox::default() }),
            has_unread: AtomicBool::new(false),
            began: AtomicBool::new(false),
            word: Futex::new(0),
            sleeps: AtomicBool::new(false),
        }
    }

    /// What a worker may send before anything is read.
    pub(crate) fn terms(&self) -> Credit {
        Credit { items: self.window, bytes: MOST_UNREAD_BYTES }
    }

    /// Whether there are items to take.
    pub fn has_unread(&self) -> bool {
        self.has_unread.load(Ordering::Acquire)
    }

    /// A number that is another one whenever the stream has got on, and whether it waits for its reader: it does not
    /// hang then.
    pub(crate) fn pace_of_life(&self) -> (u64, bool) {
        let inbox = self.inbox.lock();
        let waits = inbox.came.items >= inbox.granted.items || inbox.came.bytes >= inbox.granted.bytes;
        (inbox.came.items << 1 | u64::from(waits), waits)
    }

    /// Whether any item has come: the task is not run again then.
    pub(crate) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    /// The task lies in a lane now, with these words.
    pub(crate) fn sent_to(&self, pace: &Pace) {
        self.inbox.lock().pace = Some(pace.clone());
    }

    /// The task has ended: nothing is granted in its lane any more.
    pub(crate) fn end(&self) {
        self.inbox.lock().pace = None;
        self.wake();
    }

    /// A record has come; `copy` appends its bytes.
    ///
    /// # Errors
    ///
    /// The worker had no credit for it.
    pub(crate) fn arrive(&self, form: u8, flags: u16, copy: impl FnOnce(&mut Vec<u8>)) -> Result<Arrived> {
        self.take_in(|items, is_read| {
            let begin = items.bytes.len();
            copy(&mut items.bytes);
            let cost = (items.bytes.len() - begin) as u64;
            if is_read {
                let end = items.bytes.len();
                items.places.push(Place::Record { form, flags, end, segments: Vec::new(), cost });
            } else {
                items.bytes.truncate(begin);
            }
            cost
        })
    }

    /// A frame has come, with the segments that it refers to, or the reason why those were lost.
    ///
    /// # Errors
    ///
    /// The worker had no credit for it.
    pub(crate) fn arrive_frame(
        &self,
        flags: u16,
        cost: u64,
        frame: Result<(Vec<u8>, Vec<Arc<Segment>>), Failure>,
    ) -> Result<Arrived> {
        self.take_in(|items, is_read| {
            if is_read {
                items.places.push(match frame {
                    Ok((bytes, segments)) => {
                        items.bytes.extend_from_slice(&bytes);
                        let end = items.bytes.len();
                        Place::Record { form: crate::wire::form::FRAME, flags, end, segments, cost }
                    }
                    Err(failure) => Place::Lost { failure, cost },
                });
            }
            cost
        })
    }

    /// An item of a thread of this process has come, which asks for credit first.
    ///
    /// # Errors
    ///
    /// The thread had no credit for it.
    pub(crate) fn arrive_local(&self, value: Opaque, cost: u64) -> Result<Arrived> {
        let mut value = Some(value);
        let arrived = self.take_in(|items, is_read| {
            if is_read {
                items.places.extend(value.take().map(|value| Place::Local { value, cost }));
            }
            cost
        });
        drop(value);
        arrived
    }

    fn take_in(&self, add: impl FnOnce(&mut Items, bool) -> u64) -> Result<Arrived> {
        let mut inbox = self.inbox.lock();
        let inbox_ref = &mut *inbox;
        let Credit { items, bytes } = inbox_ref.came;
        if items >= inbox_ref.granted.items || bytes >= inbox_ref.granted.bytes {
            return Err(error!(Code::SharedMemoryCorrupt, "it sent more items than its reader allowed"));
        }
        let cost = add(&mut inbox_ref.items, !inbox_ref.closed);
        inbox_ref.came = Credit { items: items + 1, bytes: bytes.saturating_add(cost) };
        self.began.store(true, Ordering::Release);
        if inbox_ref.closed {
            return Ok(Arrived::Quietly);
        }
        self.has_unread.store(true, Ordering::Release);
        let awaited = std::mem::take(&mut inbox_ref.wants_signal);
        drop(inbox);
        self.wake();
        Ok(if awaited { Arrived::Awaited } else { Arrived::Quietly })
    }

    /// Reader: takes what has come in exchange for what it has read; false if nothing has.
    pub fn take(&self, read: &mut Items) -> bool {
        if !self.has_unread() {
            return false;
        }
        // Dropped before the lock is taken: what it holds may be an object of the program's.
        read.clear();
        let mut inbox = self.inbox.lock();
        std::mem::swap(&mut inbox.items, read);
        self.has_unread.store(false, Ordering::Release);
        !read.is_empty()
    }

    /// Reader: from how many items on it is worth to say that they were read.
    pub fn worth_saying(&self) -> u64 {
        (self.window / 4).max(1)
    }

    /// Reader: it has read this much since the last time, and so raises the credit of the task.
    pub fn say_read(&self, task: u64, read: Credit) {
        let mut inbox = self.inbox.lock();
        inbox.read.items += read.items;
        inbox.read.bytes = inbox.read.bytes.saturating_add(read.bytes);
        let granted = Credit {
            items: inbox.read.items.saturating_add(self.window),
            bytes: inbox.read.bytes.saturating_add(MOST_UNREAD_BYTES),
        };
        inbox.granted = granted;
        if let Some(pace) = &inbox.pace {
            pace.grant(task, granted);
        }
        drop(inbox);
        self.wake();
    }

    /// Reader: leaves; gives what it has not read, to be dropped where that may run code of the program's.
    pub fn leave(&self) -> Items {
        let mut inbox = self.inbox.lock();
        inbox.closed = true;
        self.has_unread.store(false, Ordering::Release);
        let unread = std::mem::take(&mut inbox.items);
        drop(inbox);
        self.wake();
        unread
    }

    /// Asks for a signal when something comes; false if something is there.
    pub(crate) fn want_signal(&self) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.wants_signal = inbox.items.is_empty();
        inbox.wants_signal
    }

    /// What a thread of this process may still hand over.
    pub fn credit(&self) -> Credit {
        let inbox = self.inbox.lock();
        let (granted, came) = (inbox.granted, inbox.came);
        Credit {
            items: granted.items.saturating_sub(came.items),
            bytes: granted.bytes.saturating_sub(came.bytes),
        }
    }

    /// Whether a thread of this process may make another item.
    pub fn has_credit(&self) -> bool {
        let left = self.credit();
        left.items > 0 && left.bytes > 0
    }

    /// Shows the unread values of this process, unless another thread is at them.
    pub fn visit<E>(
        &self,
        mut show: impl FnMut(&Opaque) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.inbox.try_lock().map_or(Ok(()), |inbox| inbox.items.local().try_for_each(&mut show))
    }

    /// Sleeps until something may have changed, unless `ready` holds; true if a signal's handler has to run first.
    pub fn sleep_unless(&self, ready: impl FnOnce() -> bool, timeout: Option<Duration>) -> bool {
        let observed = self.word.load(Ordering::Acquire);
        self.sleeps.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either this sees what has changed, or the other sees that this sleeps.
        fence(Ordering::SeqCst);
        !ready() && self.word.wait_while(observed, timeout) == Wait::Interrupted
    }

    /// Makes sleepers look again.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::AcqRel) {
            self.word.fetch_add(1, Ordering::AcqRel);
            self.word.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Lane;
    use crate::wire::form;

    fn text(items: &mut Items) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((item, _)) = items.take_next() {
            all.push(match item {
                Item::Record(_, _, bytes, _) => String::from_utf8_lossy(bytes).into_owned(),
                Item::Local(value) => value.downcast_ref::<&str>().map_or("?", |text| text).to_owned(),
                Item::Lost(_) => "lost".to_owned(),
            });
        }
        all
    }

    fn arrive(stream: &Stream, bytes: &[u8]) -> Result<Arrived> {
        stream.arrive(form::BYTES, 0, |out| out.extend_from_slice(bytes))
    }

    #[test]
    fn items_come_in_their_order_whatever_they_are() {
        let stream = Stream::new(10);
        let mut read = Items::default();
        assert!(!stream.take(&mut read) && !stream.has_begun());
        for _ in 0..2 {
            assert!(arrive(&stream, b"one").is_ok() && arrive(&stream, b"").is_ok());
            assert_eq!(stream.arrive_local(Opaque::new("local"), 0).ok(), Some(Arrived::Quietly));
            let frame = Ok((b"frame".to_vec(), Vec::new()));
            assert!(stream.arrive_frame(0, 5, frame).is_ok());
            assert!(stream.arrive_frame(0, 5, Err(Failure::Terminated)).is_ok());
            assert!(stream.has_unread() && stream.has_begun() && stream.take(&mut read));
            assert_eq!(text(&mut read), ["one", "", "local", "frame", "lost"]);
            assert!(!stream.has_unread() && !stream.take(&mut read));
        }
    }

    #[test]
    fn more_than_was_granted_is_refused() {
        let (stream, task) = (Stream::new(2), 7);
        assert_eq!(stream.terms(), Credit { items: 2, bytes: MOST_UNREAD_BYTES });
        assert!(arrive(&stream, b"1").is_ok() && stream.has_credit() && arrive(&stream, b"2").is_ok());
        assert!(!stream.has_credit() && arrive(&stream, b"3").is_err());
        let (lane, _fd) = Lane::create(0).expect("a lane");
        stream.sent_to(&lane.pace);
        stream.say_read(task, Credit { items: 1, bytes: 1 });
        assert_eq!(lane.pace.granted(task), Some(Credit { items: 3, bytes: MOST_UNREAD_BYTES + 1 }));
        assert!(arrive(&stream, b"3").is_ok() && arrive(&stream, b"4").is_err());
        stream.end();
        stream.say_read(task, Credit { items: 1, bytes: 1 });
        assert_eq!(lane.pace.granted(task).map(|credit| credit.items), Some(3), "the lane is another's now");
    }

    #[test]
    fn a_large_item_passes_and_the_next_waits() {
        let stream = Stream::new(100);
        assert!(arrive(&stream, b"1").is_ok());
        let large = Ok((Vec::new(), Vec::new()));
        assert!(stream.arrive_frame(0, 2 * MOST_UNREAD_BYTES, large).is_ok());
        assert!(arrive(&stream, b"3").is_err());
        stream.say_read(1, Credit { items: 2, bytes: 2 * MOST_UNREAD_BYTES + 1 });
        assert!(arrive(&stream, b"3").is_ok());
    }

    #[test]
    fn values_of_this_process_count_with_their_cost() {
        let stream = Stream::new(3);
        let left = || (stream.credit().items, stream.credit().bytes);
        assert_eq!(left(), (3, MOST_UNREAD_BYTES));
        assert!(stream.arrive_local(Opaque::new("1"), 5).is_ok());
        assert_eq!((left(), stream.has_credit()), ((2, MOST_UNREAD_BYTES - 5), true));
        assert!(stream.arrive_local(Opaque::new("2"), 2 * MOST_UNREAD_BYTES).is_ok());
        assert_eq!((left(), stream.has_credit()), ((1, 0), false));
        assert!(stream.arrive_local(Opaque::new("3"), 0).is_err());
        let mut read = Items::default();
        assert!(stream.take(&mut read));
        let costs: Vec<_> = std::iter::from_fn(|| read.take_next().map(|(_, cost)| cost)).collect();
        assert_eq!(costs, [5, 2 * MOST_UNREAD_BYTES]);
        stream.say_read(1, Credit { items: 2, bytes: 5 + 2 * MOST_UNREAD_BYTES });
        assert_eq!(left(), (3, MOST_UNREAD_BYTES));
    }

    #[test]
    fn what_comes_after_the_reader_has_left_is_dropped() {
        let stream = Stream::new(3);
        assert!(arrive(&stream, b"1").is_ok());
        assert_eq!(text(&mut stream.leave()), ["1"]);
        assert!(arrive(&stream, b"2").is_ok());
        assert_eq!(stream.arrive_local(Opaque::new("3"), 1).ok(), Some(Arrived::Quietly));
        assert!(!stream.has_unread() && text(&mut stream.leave()).is_empty());
        assert!(arrive(&stream, b"4").is_err(), "it has no more credit than before");
    }

    #[test]
    fn a_signal_is_asked_for_once() {
        let stream = Stream::new(3);
        assert!(stream.want_signal());
        assert_eq!(arrive(&stream, b"1").ok(), Some(Arrived::Awaited));
        assert!(!stream.want_signal(), "there is something");
        assert_eq!(arrive(&stream, b"2").ok(), Some(Arrived::Quietly));
    }

    #[test]
    fn a_reader_sleeps_until_something_comes() {
        let stream = Stream::new(3);
        let (begin, short) = (std::time::Instant::now(), Duration::from_millis(5));
        assert!(!stream.sleep_unless(|| false, Some(short)) && begin.elapsed() >= short);
        assert!(!stream.sleep_unless(|| true, None));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !stream.has_unread() {
                    stream.sleep_unless(|| stream.has_unread(), None);
                }
            });
            std::thread::yield_now();
            assert!(arrive(&stream, b"1").is_ok());
            reader.join().expect("it was woken");
        });
    }

    #[test]
    fn a_frame_costs_what_it_refers_to() {
        assert_eq!(cost(0, b"12345"), 5);
        assert_eq!(cost(flags::DESCRIBED, b"no table"), 8);
        let entry = crate::codec::table::Entry { segment: 3, generation: 1, offset: 0, length: 1000 };
        let table = crate::codec::table::write(0, &[crate::codec::Part::Placed(entry)], &[]);
        assert_eq!(cost(flags::DESCRIBED, &table), 1000 + table.len() as u64);
    }
}
