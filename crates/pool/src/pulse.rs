//! What a running task reports while it runs: a sign of life, and how far it is.
//!
//! A worker writes it into its lane's memory, and the parent reads it when it has a reason to. Nothing is sent and no
//! thread is woken, so a task may report as often as it likes. It is a hint: the parent bounds what it reads, and a
//! worker that lies shows wrong progress of its own task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ropewalk_base::Result;
use ropewalk_os::mmap::Mapping;
use ropewalk_shm::memory::Words;

use crate::clock;

/// Words of a note: 160 bytes of text.
const NOTE_WORDS: usize = 20;
/// The longest note that travels; a longer one is cut.
pub const MOST_NOTE: usize = NOTE_WORDS * 8;
/// The words before the note.
const FIXED: usize = 6;
/// How often a reader tries again when the writer was at work; after that it goes without.
const MOST_TRIES: usize = 4;

/// How far a task has said it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What is done, in the task's own unit.
    pub done: f64,
    /// Of how much; `None` if the task did not say.
    pub total: Option<f64>,
    /// The task's remark.
    pub note: Option<Box<str>>,
}

impl Progress {
    /// The progress with its note cut to what travels.
    pub fn new(done: f64, total: Option<f64>, note: Option<&str>) -> Self {
        let cut = |note: &str| {
            let end = (0..=note.len().min(MOST_NOTE)).rev().find(|end| note.is_char_boundary(*end));
            note[..end.unwrap_or(0)].into()
        };
        Self { done, total, note: note.map(cut) }
    }
}

/// A task's last sign of life.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// Nanoseconds of the monotonic clock.
    pub at: u64,
    /// What the task has said of its progress, if anything.
    pub progress: Option<Progress>,
}

/// One lane's words for it.
///
/// In order: a version, odd while the rest does not belong together; the task's id; the time of the last sign of life;
/// `done` and `total` as bits of an `f64`, `total` not a number if there is none, `done` not a number if there is no
/// progress; the note's length, or all ones for none; the note. Written by the worker, under a lock of its own, because
/// threads of a task may report too.
#[derive(Debug)]
pub(crate) struct Pulse(Words<[AtomicU64; FIXED + NOTE_WORDS]>);

impl Pulse {
    /// Bytes of the words.
    pub(crate) const SIZE: usize = size_of::<[AtomicU64; FIXED + NOTE_WORDS]>();

    pub(crate) fn new(map: &Arc<Mapping>, offset: usize) -> Result<Self> {
        Words::new(map, offset).map(Self)
    }

    /// Worker: a sign of life; without progress, what was reported before stays if it is the same task's.
    pub(crate) fn write(&self, task: u64, progress: Option<&Progress>) {
        let [version, id, at, done, total, length, note @ ..] = &*self.0;
        let before = version.load(Ordering::Relaxed) & !1;
        version.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let fresh = id.swap(task, Ordering::Relaxed) != task;
        at.store(clock::nanos(), Ordering::Relaxed);
        match progress {
            Some(progress) => {
                done.store(progress.done.to_bits(), Ordering::Relaxed);
                total.store(progress.total.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
                let text = progress.note.as_deref().map(str::as_bytes);
                length.store(text.map_or(u64::MAX, |text| text.len() as u64), Ordering::Relaxed);
                for (word, bytes) in note.iter().zip(text.unwrap_or_default().chunks(8)) {
                    let mut padded = [0; 8];
                    padded[..bytes.len()].copy_from_slice(bytes);
                    word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
                }
            }
            None if fresh => done.store(f64::NAN.to_bits(), Ordering::Relaxed),
            None => {}
        }
        version.store(before.wrapping_add(2), Ordering::Release);
    }

    /// Parent: the last sign of life of this task, if there was one and the worker is not writing for ever.
    pub(crate) fn read(&self, task: u64) -> Option<Beat> {
        let [version, id, at, done, total, length, note @ ..] = &*self.0;
        for _ in 0..MOST_TRIES {
            let before = version.load(Ordering::Acquire);
            if id.load(Ordering::Relaxed) != task {
                return None;
            }
            let at = at.load(Ordering::Relaxed);
            let done = f64::from_bits(done.load(Ordering::Relaxed));
            let total = f64::from_bits(total.load(Ordering::Relaxed));
            let length = usize::try_from(length.load(Ordering::Relaxed)).ok();
            let text: Vec<u8> =
                note.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            fence(Ordering::Acquire);
            if before % 2 == 1 || version.load(Ordering::Relaxed) != before {
                std::hint::spin_loop();
                continue;
            }
            let note = length.and_then(|length| text.get(..length)).map(String::from_utf8_lossy);
            let total = Some(total).filter(|total| total.is_finite());
            let progress = Some(Progress { done, total, note: note.map(Into::into) });
            return Some(Beat { at, progress: progress.filter(|progress| progress.done.is_finite()) });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Lane;

    #[test]
    fn what_a_task_reports_is_read_as_it_was_written() {
        let (lane, _fd) = Lane::create(0).expect("a lane");
        let pulse = &lane.pulse;
        assert_eq!(pulse.read(7), None, "it has said nothing");
        pulse.write(7, None);
        let beat = pulse.read(7).expect("a sign of life");
        assert!(beat.progress.is_none() && beat.at <= clock::nanos() && beat.at > 0);
        let progress = Progress::new(3.0, Some(4.5), Some("nearly"));
        pulse.write(7, Some(&progress));
        assert_eq!(pulse.read(7).and_then(|beat| beat.progress), Some(progress.clone()));
        pulse.write(7, None);
        assert_eq!(
            pulse.read(7).and_then(|beat| beat.progress),
            Some(progress),
            "a beat changes no progress"
        );
        assert_eq!(pulse.read(8), None, "it is another task's");
        pulse.write(8, None);
        assert_eq!(pulse.read(8).map(|beat| beat.progress), Some(None), "and that progress was, too");
    }

    #[test]
    fn a_note_is_cut_between_two_characters() {
        let long = "ä".repeat(MOST_NOTE);
        let progress = Progress::new(0.0, None, Some(&long));
        assert_eq!(progress.note.as_deref(), Some(&long[..MOST_NOTE]));
        let odd = format!("a{long}");
        assert_eq!(Progress::new(0.0, None, Some(&odd)).note.map(|note| note.len()), Some(MOST_NOTE - 1));
        let (lane, _fd) = Lane::create(0).expect("a lane");
        lane.pulse.write(1, Some(&progress));
        assert_eq!(lane.pulse.read(1).and_then(|beat| beat.progress), Some(progress));
    }

    #[test]
    fn a_worker_that_scribbles_makes_nobody_wait() {
        let (lane, _fd) = Lane::create(0).expect("a lane");
        for junk in [1, 0x8080_8080_8080_8080, u64::MAX] {
            for word in &*lane.pulse.0 {
                word.store(junk, Ordering::Relaxed);
            }
            let _ = lane.pulse.read(junk);
        }
        // A length beyond the note's room is no note, and a total that is no number is none.
        lane.pulse.write(3, Some(&Progress::new(1.0, Some(f64::INFINITY), Some("x"))));
        lane.pulse.0[5].store(MOST_NOTE as u64 + 1, Ordering::Relaxed);
        assert_eq!(
            lane.pulse.read(3).and_then(|beat| beat.progress),
            Some(Progress { done: 1.0, total: None, note: None })
        );
        // Odd for ever.
        lane.pulse.0[0].store(5, Ordering::Relaxed);
        assert_eq!(lane.pulse.read(3), None);
    }
}
