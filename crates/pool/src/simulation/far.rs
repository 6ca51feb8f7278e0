//! A worker of the simulation: the far end of its lanes, run one step at a time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropewalk_os::socket;
use ropewalk_shm::memory::Segment;

use super::dice::Dice;
use crate::backend::processes::spawn::Seat;
use crate::codec::table::{Entry, Table};
use crate::control::Control;
use crate::pace::Credit;
use crate::wire::{flags, form, kind};
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
    /// What it may send, and has sent, if it is a stream.
    items: Option<(Credit, Credit)>,
    /// Its session, and the number of the state that it found.
    pub(super) session: Option<(u32, u32)>,
    /// The actor's object could not be made.
    unmade: bool,
    /// The call whose answer it waits for.
    waits: Option<u64>,
}

/// A session as a lane knows it.
struct State {
    generation: u32,
    is_actor: bool,
    /// Whether its actor's object could not be made, once that was tried.
    unmade: Option<bool>,
}

pub(super) struct FarLane {
    end: WorkerEnd,
    is_ready: bool,
    /// Functions that it has been given and may be asked for.
    functions: HashSet<u64>,
    pub(super) started: Option<Started>,
    sessions: HashMap<u32, State>,
    named: u32,
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
        session: Option<(u32, u32)>,
    },
    /// A session was announced: what its arguments are.
    Announced {
        id: u32,
        tag: u64,
    },
    /// An item of a task was sent.
    Sent {
        id: u64,
    },
    /// A call of a task was answered, with what belongs to the task or not.
    Heard {
        id: u64,
        own: bool,
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
    /// A process of its own has a socket,
    socket: Option<OwnedFd>,
    /// and a thread of the pool's process a seat.
    pub(super) seat: Option<Seat>,
    pub(super) lanes: Vec<FarLane>,
    pub(super) views: Vec<View>,
    /// The releases that it still owes, by lease: the next lane sends the RELEASE of a view.
    releases: VecDeque<(u64, u64)>,
    leaving: usize,
    /// Tasks that it has started.
    pub(super) starts: u64,
}

impl Far {
    pub(super) fn new(id: u64, socket: OwnedFd, control: &Arc<Control>, lanes: Vec<OwnedFd>) -> Self {
        let ends = lanes.into_iter().map(|fd| WorkerEnd::attach(fd, Arc::clone(control)).expect("a lane"));
        Self::over(id, Some(socket), None, ends)
    }

    pub(super) fn seated(mut seat: Seat) -> Self {
        let (end, _) = seat.sit().expect("a lane");
        Self::over(seat.id(), None, Some(seat), std::iter::once(end))
    }

    fn over(
        id: u64,
        socket: Option<OwnedFd>,
        seat: Option<Seat>,
        ends: impl Iterator<Item = WorkerEnd>,
    ) -> Self {
        let lanes = ends.map(|end| FarLane {
            end,
            is_ready: false,
            functions: HashSet::new(),
            started: None,
            sessions: HashMap::new(),
            named: 0,
            loading: false,
        });
        let lanes = lanes.collect();
        Self { id, socket, seat, lanes, views: Vec::new(), releases: VecDeque::new(), leaving: 0, starts: 0 }
    }

    /// Empties its socket: what came there is in this process anyway.
    fn drain(&self) {
        let Some(own) = &self.socket else { return };
        let mut buffer = [0; 64];
        let mut fds = Vec::new();
        while matches!(socket::recv(own.as_fd(), &mut buffer, &mut fds, false), Ok(got) if got > 0) {
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
        if let Some(mut started) = far.started.take() {
            let stopped = far.end.running().stopped(started.id);
            if let Some(number) = started.waits
                && !dice.one_in(40)
            {
                let (id, tag) = (started.id, started.tag);
                let answer = far.end.take_answer(number, |_, _| {});
                started.waits = started.waits.filter(|_| matches!(answer, Ok(None)));
                far.started = Some(started);
                return match answer {
                    Ok(Some((_, bytes))) => Came::Heard { id, own: tag_of(&bytes) == Some(tag) },
                    Ok(None) => Came::Nothing,
                    Err(_) => Came::Corrupt,
                };
            }
            if dice.one_in(6) {
                // Perhaps another call than the one that it has given up.
                let body = pattern(started.tag, 8);
                match far.end.try_call(started.id, 0, &body) {
                    Ok(number) => started.waits = number.or(started.waits),
                    Err(_) => return Came::Corrupt,
                }
                far.started = Some(started);
                return Came::Nothing;
            }
            if let Some((credit, sent)) = &mut started.items
                && !stopped
                && !dice.one_in(6)
            {
                *credit = far.end.running().granted(started.id).unwrap_or(*credit);
                let id = started.id;
                let mut came = Came::Nothing;
                if sent.items < credit.items && sent.bytes < credit.bytes {
                    let body = [started.tag.to_le_bytes(), sent.items.to_le_bytes()].concat();
                    match far.end.try_item(id, form::BYTES, 0, &body) {
                        Ok(true) => {
                            (sent.items, sent.bytes) = (sent.items + 1, sent.bytes + body.len() as u64);
                            came = Came::Sent { id };
                        }
                        Ok(false) => {}
                        Err(_) => came = Came::Corrupt,
                    }
                }
                far.started = Some(started);
                return came;
            }
            let raises = raises || stopped;
            let mut bits = if raises { flags::ERROR } else { 0 };
            if stopped {
                bits |= flags::STOPPED;
            } else if raises && dice.one_in(4) {
                bits |= flags::FINAL;
            }
            if started.unmade {
                bits = flags::ERROR | flags::ACTOR;
            }
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
            return Came::Answered { id: started.id, raised: raises || started.unmade };
        }
        let Ok(next) = far.end.try_next() else { return Came::Corrupt };
        let Some(record) = next else { return Came::Nothing };
        let payload = far.end.payload().to_vec();
        far.end.finish();
        // The functions that a task needs are sent one after the other, with its session between them.
        far.loading = match record.kind {
            kind::FUNCTION => true,
            kind::SESSION | kind::ENTER_SESSION | kind::EXIT => far.loading,
            _ => false,
        };
        match record.kind {
            kind::TASK => {
                let described = record.flags & flags::DESCRIBED != 0;
                let Some((tag, view)) = read(&payload, described) else { return Came::Garbled };
                if !far.functions.contains(&record.aux) {
                    return Came::Garbled;
                }
                // One that does not say that the call begins is loading still, for all that the parent knows.
                if record.flags & flags::TIMED != 0 && !dice.one_in(4) {
                    far.end.begin(record.id);
                }
                let stream = record.flags & flags::STREAM != 0;
                let items = stream.then_some((record.terms.credit, Credit::default()));
                let (mut session, mut unmade) = (None, false);
                if record.flags & flags::OF_SESSION != 0 {
                    let Some(state) = far.sessions.get_mut(&far.named) else { return Came::Garbled };
                    unmade = *state.unmade.get_or_insert(state.is_actor && dice.one_in(8));
                    session = Some((far.named, state.generation));
                }
                far.started = Some(Started {
                    id: record.id,
                    tag,
                    view,
                    items: items.filter(|_| !unmade),
                    session,
                    unmade,
                    waits: None,
                });
                self.starts += 1;
                Came::Started { id: record.id, tag, session }
            }
            kind::SESSION => {
                let described = record.flags & flags::DESCRIBED != 0;
                let Some((tag, view)) = read(&payload, described) else { return Came::Garbled };
                if record.aux != 0 && !far.functions.contains(&record.aux) {
                    return Came::Garbled;
                }
                let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
                let (id, generation) = (low(record.id), low(record.id >> 32));
                let is_actor = record.flags & flags::ACTOR != 0;
                far.sessions.insert(id, State { generation, is_actor, unmade: None });
                far.named = id;
                // Its state keeps no view for long.
                self.releases.extend(view.map(|view| (view.lease, 1)));
                Came::Announced { id, tag }
            }
            kind::ENTER_SESSION => {
                far.named = u32::try_from(record.aux).unwrap_or(0);
                // No time passes between it and the task behind it.
                self.step(lane, dice)
            }
            kind::DROP_SESSION => {
                let known = far.sessions.remove(&u32::try_from(record.aux).unwrap_or(0));
                if known.is_some() { Came::Nothing } else { Came::Garbled }
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
        let _ = match dice.below(11) {
            9 => far.end.try_reply(kind::DONE, flags::FINAL, id, 1, &[]),
            10 => {
                far.end.try_call(id, dice.roll() as u16 & flags::DESCRIBED, &junk).map(|sent| sent.is_some())
            }
            // One may be sent, at least: the last is beyond any credit of this world.
            6 => (0..8)
                .try_for_each(|_| far.end.try_item(id, form::BYTES, 0, &[7; 16]).map(drop))
                .map(|()| true),
            7 => far.end.try_item(id, form::FRAME, flags::DESCRIBED, &dangling(dice)),
            8 => far.end.try_reply(kind::PROGRESS, 0, id, dice.roll(), &[&junk]),
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
