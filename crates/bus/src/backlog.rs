//! The messages that wait for one receiver: in order, bounded, with the places where messages were lost.

use std::collections::VecDeque;

/// What happens to a message for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The publisher waits.
    Block,
    /// The oldest waiting message is dropped to make room.
    DropOldest,
    /// The new message is dropped.
    DropNewest,
    /// The publisher gets an error.
    Error,
}

#[derive(Debug)]
enum Slot<M> {
    Message(M),
    /// A message that may be dropped for a later one of the same kind.
    Loose(M),
    /// This many messages were dropped here.
    Gap(u64),
}

impl<M> Slot<M> {
    fn message(self) -> Option<M> {
        match self {
            Self::Message(message) | Self::Loose(message) => Some(message),
            Self::Gap(_) => None,
        }
    }
}

/// The counters of a backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were put in.
    pub accepted: u64,
    /// Messages that a receiver took.
    pub received: u64,
    /// Messages that were dropped because there was no room.
    pub dropped: u64,
    /// Messages whose publishers got an error because there was no room.
    pub refused: u64,
    /// The most messages that waited at once.
    pub peak: usize,
}

/// The result of offering a message. The caller drops a returned message after it has released its guard.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Offered<M> {
    /// The message was accepted and waits.
    Taken,
    /// Nothing was changed; the message comes back.
    Full(M),
    /// This message was counted as dropped: an older one, or the offered one.
    Dropped(M),
    /// The policy is an error for the publisher.
    Refused(M),
    /// The backlog is closed.
    Closed(M),
}

/// The result of a reception.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<M> {
    /// The oldest message.
    Message(M),
    /// This many messages were lost before the next one.
    Lagged(u64),
    /// Nothing yet.
    Empty,
    /// Nothing, and nothing more will come.
    Ended,
}

/// See the module. The owner guards it.
///
/// `repr(C)` keeps the fields in this order: every message touches all of them, and the owner's next fields follow the
/// flag.
#[derive(Debug)]
#[repr(C)]
pub struct Backlog<M> {
    slots: VecDeque<Slot<M>>,
    /// How many of the slots are gaps.
    gaps: usize,
    /// Messages dropped behind the last slot.
    tail_gap: u64,
    /// Counts of all messages so far.
    pub counters: Counters,
    /// No more messages are accepted; waiting ones can still be received.
    pub closed: bool,
}

impl<M> Default for Backlog<M> {
    fn default() -> Self {
        Self { slots: VecDeque::new(), gaps: 0, tail_gap: 0, closed: false, counters: Counters::default() }
    }
}

impl<M> Backlog<M> {
    /// How many messages wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.gaps
    }

    /// Whether no message waits. A loss may still wait to be reported: see [`pending`](Self::pending).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many receptions would find something now, reports of losses included.
    #[inline]
    pub fn pending(&self) -> usize {
        self.slots.len() + usize::from(self.tail_gap > 0)
    }

    /// Appends a message, whether there is room or not.
    #[inline(always)]
    pub fn put(&mut self, message: M) {
        self.put_slot(Slot::Message(message));
    }

    #[inline(always)]
    fn put_slot(&mut self, slot: Slot<M>) {
        if self.tail_gap > 0 {
            self.put_gap();
        }
        self.slots.push_back(slot);
        self.counters.accepted += 1;
        self.counters.peak = self.counters.peak.max(self.len());
    }

    #[cold]
    fn put_gap(&mut self) {
        self.slots.push_back(Slot::Gap(std::mem::take(&mut self.tail_gap)));
        self.gaps += 1;
    }

    /// Offers a message to a backlog that holds `capacity` messages.
    pub fn offer(&mut self, message: M, capacity: usize, overflow: Overflow) -> Offered<M> {
        if self.closed {
            return Offered::Closed(message);
        }
        let mut dropped = None;
        if self.len() >= capacity {
            match overflow {
                Overflow::Block => return Offered::Full(message),
                Overflow::Error => {
                    self.counters.refused += 1;
                    return Offered::Refused(message);
                }
                Overflow::DropNewest => {
                    self.lag(1);
                    return Offered::Dropped(message);
                }
                Overflow::DropOldest => dropped = self.drop_oldest(),
            }
        }
        self.put(message);
        dropped.map_or(Offered::Taken, Offered::Dropped)
    }

    /// As [`offer`](Self::offer), but each message comes with its own policy, and a loss leaves no gap: the caller
    /// reports it. The oldest message that came with [`Overflow::DropOldest`] is dropped to make room; if there is
    /// none, the new message is dropped.
    pub fn offer_among(&mut self, message: M, capacity: usize, overflow: Overflow) -> Offered<M> {
        if self.closed {
            return Offered::Closed(message);
        }
        let mut dropped = None;
        if self.len() >= capacity {
            let loose = self.slots.iter().position(|slot| matches!(slot, Slot::Loose(_)));
            match (overflow, loose) {
                (Overflow::Block, _) => return Offered::Full(message),
                (Overflow::Error, _) => {
                    self.counters.refused += 1;
                    return Offered::Refused(message);
                }
                (Overflow::DropOldest, Some(at)) => {
                    dropped = self.slots.remove(at).and_then(Slot::message);
                    self.counters.dropped += 1;
                }
                (Overflow::DropOldest | Overflow::DropNewest, _) => {
                    self.counters.dropped += 1;
                    return Offered::Dropped(message);
                }
            }
        }
        let slot = if overflow == Overflow::DropOldest { Slot::Loose } else { Slot::Message };
        self.put_slot(slot(message));
        dropped.map_or(Offered::Taken, Offered::Dropped)
    }

    /// Counts messages that were lost behind the last one, so that a gap reports them to the receiver.
    pub fn lag(&mut self, count: u64) {
        self.tail_gap += count;
        self.counters.dropped += count;
    }

    /// Drops the oldest message; a gap takes its place.
    fn drop_oldest(&mut self) -> Option<M> {
        let (mut lost, mut oldest) = (0, None);
        while oldest.is_none() {
            match self.slots.pop_front()? {
                Slot::Message(message) | Slot::Loose(message) => oldest = Some(message),
                Slot::Gap(count) => {
                    lost += count;
                    self.gaps -= 1;
                }
            }
        }
        // A gap that follows joins this one.
        if let Some(Slot::Gap(count)) = self.slots.front() {
            lost += count;
            self.slots.pop_front();
            self.gaps -= 1;
        }
        self.slots.push_front(Slot::Gap(lost + 1));
        self.gaps += 1;
        self.counters.dropped += 1;
        oldest
    }

    /// Takes the oldest message, unless a loss before it is to be reported first.
    #[inline(always)]
    pub fn take_message(&mut self) -> Option<M> {
        if !matches!(self.slots.front(), Some(Slot::Message(_) | Slot::Loose(_))) {
            return None;
        }
        self.counters.received += 1;
        self.slots.pop_front().and_then(Slot::message)
    }

    /// Takes the next message or report of a loss.
    pub fn take(&mut self) -> Taken<M> {
        match self.slots.pop_front() {
            Some(Slot::Message(message) | Slot::Loose(message)) => {
                self.counters.received += 1;
                Taken::Message(message)
            }
            Some(Slot::Gap(count)) => {
                self.gaps -= 1;
                Taken::Lagged(count)
            }
            None if self.tail_gap > 0 => Taken::Lagged(std::mem::take(&mut self.tail_gap)),
            None if self.closed => Taken::Ended,
            None => Taken::Empty,
        }
    }

    /// Takes up to `most` messages that have no gap between them.
    ///
    /// # Errors
    ///
    /// The other result, if the next thing to receive is no message.
    pub fn take_many(&mut self, most: usize) -> Result<Vec<M>, Taken<M>> {
        let whole = self.slots.iter().take(most).take_while(|slot| !matches!(slot, Slot::Gap(_))).count();
        if whole == 0 {
            return Err(self.take());
        }
        let messages: Vec<M> = self.slots.drain(..whole).filter_map(Slot::message).collect();
        self.counters.received += messages.len() as u64;
        Ok(messages)
    }

    /// Every message that waits.
    pub fn messages(&self) -> impl Iterator<Item = &M> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Message(message) | Slot::Loose(message) => Some(message),
            Slot::Gap(_) => None,
        })
    }

    /// Takes every message out, and forgets the gaps.
    #[must_use = "what is taken out is dropped without the guard"]
    pub fn drain(&mut self) -> Vec<M> {
        self.gaps = 0;
        std::mem::take(&mut self.slots).into_iter().filter_map(Slot::message).collect()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn taken(backlog: &mut Backlog<u32>) -> Vec<Taken<u32>> {
        std::iter::from_fn(|| match backlog.take() {
            Taken::Empty | Taken::Ended => None,
            other => Some(other),
        })
        .collect()
    }

    #[test]
    fn a_loss_is_reported_before_the_message_behind_it_is_taken() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.take_message(), None);
        for number in 0..3 {
            let _ = backlog.offer(number, 2, Overflow::DropOldest);
        }
        assert_eq!(backlog.take_message(), None);
        assert_eq!(backlog.take(), Taken::Lagged(1));
        assert_eq!((backlog.take_message(), backlog.take_message()), (Some(1), Some(2)));
        assert_eq!((backlog.take_message(), backlog.counters.received), (None, 2));
    }

    #[test]
    fn every_loss_is_reported_at_its_place() {
        let mut oldest = Backlog::default();
        let mut newest = Backlog::default();
        for number in 0..5 {
            let out = oldest.offer(number, 2, Overflow::DropOldest);
            assert_eq!(out, if number < 2 { Offered::Taken } else { Offered::Dropped(number - 2) });
            let out = newest.offer(number, 2, Overflow::DropNewest);
            assert_eq!(out, if number < 2 { Offered::Taken } else { Offered::Dropped(number) });
        }
        assert_eq!((oldest.len(), oldest.pending(), newest.len(), newest.pending()), (2, 3, 2, 3));
        assert_eq!(taken(&mut oldest), [Taken::Lagged(3), Taken::Message(3), Taken::Message(4)]);
        assert_eq!(taken(&mut newest), [Taken::Message(0), Taken::Message(1), Taken::Lagged(3)]);
        assert_eq!((oldest.counters.dropped, newest.counters.dropped), (3, 3));
        assert_eq!((oldest.counters.peak, oldest.counters.accepted, oldest.counters.received), (2, 5, 2));
    }

    #[test]
    fn gaps_that_meet_become_one() {
        let mut backlog = Backlog::default();
        backlog.put(1);
        backlog.lag(2);
        backlog.put(3);
        assert_eq!(backlog.offer(4, 2, Overflow::DropOldest), Offered::Dropped(1));
        assert_eq!(taken(&mut backlog), [Taken::Lagged(3), Taken::Message(3), Taken::Message(4)]);
    }

    #[test]
    fn a_publisher_waits_or_gets_an_error() {
        let mut backlog = Backlog::default();
        backlog.put(1);
        assert_eq!(backlog.offer(2, 1, Overflow::Block), Offered::Full(2));
        assert_eq!(backlog.offer(2, 1, Overflow::Error), Offered::Refused(2));
        backlog.closed = true;
        assert_eq!(backlog.offer(2, 9, Overflow::Block), Offered::Closed(2));
        assert_eq!((backlog.take(), backlog.take()), (Taken::Message(1), Taken::Ended));
        assert_eq!(backlog.counters.refused, 1);
    }

    #[test]
    fn many_are_taken_up_to_a_gap() {
        let mut backlog = Backlog::default();
        backlog.put(1);
        backlog.put(2);
        backlog.lag(1);
        backlog.put(3);
        assert_eq!(backlog.take_many(9), Ok(vec![1, 2]));
        assert_eq!(backlog.take_many(9), Err(Taken::Lagged(1)));
        assert_eq!(backlog.take_many(9), Ok(vec![3]));
        assert_eq!(backlog.take_many(9), Err(Taken::Empty));
        backlog.put(4);
        assert_eq!((backlog.messages().count(), backlog.drain()), (1, vec![4]));
    }

    #[test]
    fn only_loose_messages_make_room_among_others() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.offer_among(1, 2, Overflow::Block), Offered::Taken);
        assert_eq!(backlog.offer_among(2, 2, Overflow::DropOldest), Offered::Taken);
        assert_eq!(backlog.offer_among(3, 2, Overflow::DropOldest), Offered::Dropped(2));
        assert_eq!(backlog.offer_among(4, 2, Overflow::DropNewest), Offered::Dropped(4));
        assert_eq!(backlog.offer_among(5, 2, Overflow::Block), Offered::Full(5));
        assert_eq!(taken(&mut backlog), [Taken::Message(1), Taken::Message(3)], "no gap");
    }
}
