//! A worker of the simulation: the far end of its lanes, run one step at a time.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropewalk_os::socket;
use ropewalk_shm::memory::Segment;

use super::dice::Dice;
use crate::codec::table::{Entry, Table};
use crate::control::Control;
use crate::wire::{flags, kind};
use crate::worker::WorkerEnd;

/// What a task works on: its tag, over and over. So a worker that reads anything else has another task's bytes.
pub(super) fn pattern(tag: u64, length: usize) -> Vec<u8> {
    tag.to_le_bytes().iter().copied().cycle().take(length).collect()
}

/// The tag that bytes are the pattern of.
pub(super) fn tag_of(bytes: &[u8]) -> Option<u64> {
    let tag = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes == pattern(tag, bytes.len())).then_some(tag)
}

/// A view into a segment that outlives its task.
pub(super) struct View {
    pub(super) lease: u64,
    pub(super) tag: u64,
    entry: Entry,
    /// Answers that said that it is kept.
    pub(super) answers: u64,
}

impl View {
    pub(super) fn shows_its_own(&self) -> bool {
        look(&self.entry).and_then(|bytes| tag_of(&bytes)) == Some(self.tag)
    }
}

/// A task that a lane has started.
pub(super) struct Started {
    pub(super) id: u64,
    pub(super) tag: u64,
    pub(super) view: Option<View>,
}

pub(super) struct FarLane {
    end: WorkerEnd,
    is_ready: bool,
    /// Functions that it has been given and may be asked for.
    functions: HashSet<u64>,
    pub(super) started: Option<Started>,
    /// The last that it read was a function: the task for which that was sent has begun.
    pub(super) loading: bool,
}

/// The result of a step.
pub(super) enum Came {
    Nothing,
    /// A task was started: what its arguments are.
    Started {
        id: u64,
        tag: u64,
    },
    /// A task was answered with its value, or with an exception.
    Answered {
        id: u64,
        raised: bool,
    },
    /// Its ring's numbers make no sense.
    Corrupt,
    /// Its arguments were not those of any task.
    Garbled,
    /// The parent told it to leave, and it did.
    Left,
}

/// One worker process, as far as the engine can see.
pub(super) struct Far {
    pub(super) id: u64,
    socket: OwnedFd,
    pub(super) lanes: Vec<FarLane>,
    pub(super) views: Vec<View>,
    /// The releases that it still owes, by lease: the next lane sends the RELEASE of a view.
    releases: VecDeque<(u64, u64)>,
    leaving: usize,
}

impl Far {
    pub(super) fn new(id: u64, socket: OwnedFd, control: &Arc<Control>, lanes: Vec<OwnedFd>) -> Self {
        let lanes = lanes.into_iter().map(|fd| FarLane {
            end: WorkerEnd::attach(fd, Arc::clone(control)).expect("a lane"),
            is_ready: false,
            functions: HashSet::new(),
            started: None,
            loading: false,
        });
        let lanes = lanes.collect();
        Self { id, socket, lanes, views: Vec::new(), releases: VecDeque::new(), leaving: 0 }
    }

    /// Empties its socket: what came there is in this process anyway.
    fn drain(&self) {
        let mut buffer = [0; 64];
        let mut fds = Vec::new();
        while matches!(socket::recv(self.socket.as_fd(), &mut buffer, &mut fds, false), Ok(got) if got > 0) {
            fds.clear();
        }
    }

    pub(super) fn has_view(&self) -> bool {
        !self.views.is_empty()
    }

    /// Lets go of a view.
    pub(super) fn drop_view(&mut self, dice: &mut Dice) {
        let at = dice.below(self.views.len());
        let view = self.views.swap_remove(at);
        self.releases.push_back((view.lease, view.answers));
    }

    /// One thing that a sound worker does in one lane. `failing`: the task that it answers raises.
    pub(super) fn step(&mut self, lane: usize, dice: &mut Dice) -> Came {
        self.drain();
        let keeps = dice.one_in(3);
        let raises = dice.one_in(5);
        let Some(far) = self.lanes.get_mut(lane) else { return Came::Nothing };
        if !far.is_ready {
            far.is_ready = true;
            far.end.ready().expect("room for READY");
            return Came::Nothing;
        }
        if let Some((lease, answers)) = self.releases.pop_front() {
            let sent = far.end.try_reply(kind::RELEASE, flags::EMPTY, answers, lease, &[]);
            if !matches!(sent, Ok(true)) {
                self.releases.push_front((lease, answers));
            }
            return Came::Nothing;
        }
        if let Some(started) = far.started.take() {
            let mut bits = if raises { flags::ERROR } else { 0 };
            let kept = started.view.filter(|_| keeps);
            if kept.is_some() {
                bits |= flags::RETAINED;
            }
            let body = pattern(started.tag, 8 + dice.below(40));
            match far.end.try_reply(kind::DONE, bits, started.id, 1 + dice.roll() % 100_000, &[&body]) {
                Ok(true) => {}
                Ok(false) => {
                    far.started = Some(Started { view: kept, ..started });
                    return Came::Nothing;
                }
                Err(_) => return Came::Corrupt,
            }
            if let Some(view) = kept {
                match self.views.iter_mut().find(|known| known.lease == view.lease) {
                    Some(known) => known.answers += 1,
                    None => self.views.push(view),
                }
            }
            return Came::Answered { id: started.id, raised: raises };
        }
        let Ok(next) = far.end.try_next() else { return Came::Corrupt };
        let Some(record) = next else { return Came::Nothing };
        let payload = far.end.payload().to_vec();
        far.end.finish();
        far.loading = record.kind == kind::FUNCTION;
        match record.kind {
            kind::TASK => {
                let described = record.flags & flags::DESCRIBED != 0;
                let Some((tag, view)) = read(&payload, described) else { return Came::Garbled };
                if !far.functions.contains(&record.aux) {
                    return Came::Garbled;
                }
                far.started = Some(Started { id: record.id, tag, view });
                Came::Started { id: record.id, tag }
            }
            kind::FUNCTION => {
                far.functions.insert(record.aux);
                Came::Nothing
            }
            kind::FORGET_FUNCTION => {
                far.functions.remove(&record.aux);
                Came::Nothing
            }
            kind::EXIT => {
                self.leaving += 1;
                if self.leaving == self.lanes.len() { Came::Left } else { Came::Nothing }
            }
            _ => Came::Nothing,
        }
    }

    /// Says something that makes no sense, perhaps of one of the tasks that it was given.
    pub(super) fn lie(&mut self, lane: usize, given: &[u64], dice: &mut Dice) {
        let Some(far) = self.lanes.get_mut(lane) else { return };
        let id = given.get(dice.below(given.len() + 1)).copied().unwrap_or(u64::MAX);
        let junk = dice.roll().to_le_bytes();
        // A ring that is full swallows the lie.
        let _ = match dice.below(6) {
            0 => far.end.try_reply(kind::DONE, 0, id, 1, &[&junk]),
            1 => far.end.try_reply(kind::DONE, flags::DESCRIBED, id, 1, &[&junk]),
            2 => far.end.try_reply(dice.roll() as u16 | 0x100, 0, id, 1, &[&junk]),
            3 => far.end.try_reply(kind::DONE, flags::DESCRIBED, id, u64::MAX, &[&dangling(dice)]),
            4 => far.end.try_reply(kind::RELEASE, 0, dice.roll(), dice.roll() % 8, &[]),
            _ => far.end.try_reply(kind::READY, 0, 0, u64::MAX, &[]),
        };
    }
}

/// A table that names an unknown segment.
fn dangling(dice: &mut Dice) -> Vec<u8> {
    let entry =
        Entry { segment: dice.roll() | 1 << 60, generation: 1, offset: dice.roll(), length: dice.roll() };
    crate::codec::table::write(0, &[crate::codec::Part::Placed(entry)], &[])
}

/// A task's tag, and the view that a worker has of arguments that lie in a segment.
fn read(payload: &[u8], described: bool) -> Option<(u64, Option<View>)> {
    if !described {
        return tag_of(payload).map(|tag| (tag, None));
    }
    let table = Table::parse(payload).ok()?;
    let entry = table.entry(0)?;
    let tag = tag_of(&look(&entry)?)?;
    Some((tag, Some(View { lease: table.lease(), tag, entry, answers: 1 })))
}

/// The bytes at an entry, if the memory is still in the use that the entry names.
fn look(entry: &Entry) -> Option<Vec<u8>> {
    let segment = Segment::lookup(entry.segment, entry.generation).ok()??;
    segment.copy_out(entry.offset, entry.length).ok()
}
