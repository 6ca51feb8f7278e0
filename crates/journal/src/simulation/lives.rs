//! Programs that append, compact and die, one after the other on one disk, against a model of what must be there.

use std::collections::BTreeSet;
use std::path::Path;

use ropewalk_base::Code;
use ropewalk_sync::{Arc, Mutex};

use super::disk::{Chance, Plan, SimulatedDisk};
use crate::journal::{Config, Durability, Journal, Recovered};
use crate::recovery::Record;

const PATH: &str = "journal";

fn seeds() -> u64 {
    std::env::var("ROPEWALK_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

/// A record's payload: its number, the length of the rest if all have the same, and bytes that follow from it.
fn payload(number: u64, length: Option<u8>) -> Vec<u8> {
    let rest = length.map_or_else(|| Chance::of(number).below(90), u64::from);
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(length.map_or(u8::MAX, |length| length));
    bytes.extend((0..rest).map(|at| u8::try_from((number + at) % 251).expect("small")));
    bytes
}

fn number_of(payload: &[u8]) -> u64 {
    u64::from_le_bytes(*payload.first_chunk().expect("a number"))
}

/// What is known of the records.
#[derive(Default)]
struct Model {
    /// Those that must be there, in this order.
    committed: Vec<u64>,
    /// Those that may come after them: the first of these, without a gap.
    in_doubt: Vec<u64>,
    /// All records that there were, in each life. A disk that lies may bring any of these back.
    histories: Vec<Vec<u64>>,
    /// Those that were refused. A disk that lies may have kept them.
    refused: BTreeSet<u64>,
    next: u64,
    /// All records have that length, so that what is left of old ones lies where new ones could be.
    length: Option<u8>,
    /// Records are committed only when a sync says so, or when they are read again.
    later: bool,
}

impl Model {
    fn check(&mut self, found: &[u64], lies: bool, seed: u64) {
        let all: Vec<_> = self.committed.iter().chain(&self.in_doubt).copied().collect();
        let is_prefix = all.starts_with(found);
        self.histories.push(all);
        let accepted: Vec<_> =
            found.iter().copied().filter(|number| !self.refused.contains(number)).collect();
        let is_older = lies && self.histories.iter().any(|all| all.starts_with(&accepted));
        assert!(
            is_prefix || is_older,
            "seed {seed}: {found:?} is not the first part of {:?}",
            self.histories.last()
        );
        assert!(
            lies || found.len() >= self.committed.len(),
            "seed {seed}: lost: {:?}",
            &self.committed[found.len()..]
        );
        self.committed = found.to_vec();
        self.refused.retain(|number| !found.contains(number));
        self.in_doubt.clear();
    }
}

fn open(
    disk: &SimulatedDisk,
    config: Config,
) -> ropewalk_base::Result<(Journal<SimulatedDisk>, Recovered, Vec<u64>)> {
    let mut found = Vec::new();
    let each = |record: Record<'_>| {
        if record.is_snapshot {
            found.extend(record.payload.chunks(8).map(number_of));
        } else {
            let number = number_of(record.payload);
            let length = record.payload.get(8).copied().filter(|length| *length < u8::MAX);
            assert_eq!(record.payload, payload(number, length), "its own bytes");
            found.push(number);
        }
        Ok(())
    };
    let (journal, recovered) = Journal::open_on(disk.clone(), Path::new(PATH), config, each)?;
    Ok((journal, recovered, found))
}

/// Appends and compacts until the disk has had enough, or for some steps; gives whether the journal is in order.
fn work(journal: &Journal<SimulatedDisk>, model: &mut Model, chance: &mut Chance, disk: &SimulatedDisk) {
    let batches = chance.below(12);
    for _ in 0..batches {
        if model.later && chance.one_in(4) {
            if journal.sync().is_err() {
                return;
            }
            let synced = std::mem::take(&mut model.in_doubt);
            model.committed.extend(synced);
        }
        if chance.one_in(8) && model.in_doubt.is_empty() {
            let Ok(mark) = journal.last() else { return };
            let parts: Vec<Vec<u8>> = model
                .committed
                .chunks(3)
                .map(|part| part.iter().flat_map(|number| number.to_le_bytes()).collect())
                .collect();
            // Records that come between the mark and the compaction.
            let late = chance.one_in(2).then(|| append(journal, model, 1));
            if late == Some(false) || (journal.compact(mark, parts).is_err() && disk.is_off()) {
                return;
            }
            continue;
        }
        let count = 1 + chance.below(4);
        if !append(journal, model, count) && (disk.is_off() || journal.last().is_err()) {
            return;
        }
    }
    if chance.one_in(3) {
        let _ = journal.close();
    }
}

fn append(journal: &Journal<SimulatedDisk>, model: &mut Model, count: u64) -> bool {
    let numbers: Vec<_> = (model.next..model.next + count).collect();
    model.next += count;
    let payloads: Vec<_> = numbers.iter().map(|number| payload(*number, model.length)).collect();
    match journal.append_all(payloads.iter().map(Vec::as_slice)) {
        Ok(_) if model.later => {
            model.in_doubt.extend(numbers);
            true
        }
        Ok(_) => {
            assert!(model.in_doubt.is_empty(), "nothing is committed behind what may be there");
            model.committed.extend(numbers);
            true
        }
        // They are not there.
        Err(error) if matches!(error.code(), Code::OutOfDisk | Code::JournalFull | Code::JournalError) => {
            model.refused.extend(numbers);
            false
        }
        Err(error) => {
            assert_eq!(error.code(), Code::JournalFailed, "{}", error.report());
            model.in_doubt.extend(numbers);
            false
        }
    }
}

fn live(seed: u64, lies: bool) {
    let mut chance = Chance::of(seed);
    let disk = SimulatedDisk::new(seed);
    let length = chance.one_in(2).then(|| 8 * u8::try_from(chance.below(4)).expect("small") + 7);
    let mut model = Model { length, later: chance.one_in(4), ..Model::default() };
    let durability = if model.later {
        Durability::Interval(std::time::Duration::from_secs(3600))
    } else {
        Durability::Always
    };
    for _ in 0..1 + chance.below(6) {
        let plan = Plan {
            crash_at: chance.one_in(2).then(|| 1 + chance.below(60)),
            fail_at: chance.one_in(3).then(|| 1 + chance.below(60)),
            capacity: chance.one_in(3).then(|| 64 + chance.below(3000)),
            lies,
            short: chance.one_in(3),
            bare: chance.one_in(2),
        };
        disk.plan(plan);
        let max_bytes = if chance.one_in(4) { 500 + chance.below(2000) } else { u64::MAX };
        match open(&disk, Config { durability, max_bytes }) {
            Ok((journal, _, found)) => {
                model.check(&found, lies, seed);
                work(&journal, &mut model, &mut chance, &disk);
                // The end of the program, not of the machine: what was written stays seen.
                let all: Vec<_> = model.committed.iter().chain(&model.in_doubt).copied().collect();
                let is_whole = journal.last().is_ok() && !disk.is_off();
                let is_killed = chance.one_in(2);
                if is_killed {
                    std::mem::forget(journal);
                    disk.unlock();
                } else {
                    drop(journal);
                }
                if !disk.is_off() && chance.one_in(2) {
                    disk.plan(Plan { lies, ..Plan::default() });
                    match open(&disk, Config::default()) {
                        Ok((journal, _, found)) => {
                            std::mem::forget(journal);
                            disk.unlock();
                            // What the kernel has survives the program.
                            assert!(!is_whole || found == all, "seed {seed}: {found:?} is not {all:?}");
                            model.check(&found, lies, seed);
                        }
                        Err(error) => panic!("seed {seed}: {}", error.report()),
                    }
                }
            }
            Err(error) if lies => {
                let refused = matches!(error.code(), Code::JournalCorrupt | Code::NotAJournal);
                assert!(
                    refused || disk.is_off() || plan_hit(&plan, &disk),
                    "seed {seed}: {}",
                    error.report()
                );
                if refused {
                    return;
                }
            }
            Err(error) => {
                let hit = disk.is_off() || plan_hit(&plan, &disk);
                assert!(hit, "seed {seed}: {} {plan:?}", error.report());
            }
        }
        disk.power_on();
    }
    disk.plan(Plan { lies, ..Plan::default() });
    match open(&disk, Config::default()) {
        Ok((_, _, found)) => model.check(&found, lies, seed),
        Err(error) => {
            let refused = matches!(error.code(), Code::JournalCorrupt | Code::NotAJournal);
            assert!(lies && refused, "seed {seed}: {}", error.report());
        }
    }
}

fn plan_hit(plan: &Plan, disk: &SimulatedDisk) -> bool {
    plan.capacity.is_some() || plan.fail_at.is_some_and(|at| at <= disk.steps())
}

#[test]
fn what_was_committed_is_there_after_every_crash_and_what_failed_is_not() {
    for seed in 0..seeds() {
        live(seed, false);
    }
}

#[test]
fn a_disk_that_lies_about_syncs_loses_the_end_or_is_refused() {
    for seed in 0..seeds() {
        live(seed, true);
    }
}

/// The same life with a crash at each of its steps.
#[test]
fn a_crash_at_every_step_of_a_life() {
    let config = Config::default();
    let mut steps = u64::MAX;
    let mut at = 1;
    while at <= steps {
        for seed in 0..8 {
            let disk = SimulatedDisk::new(at * 8 + seed);
            let mut model = Model::default();
            disk.plan(Plan { crash_at: (steps < u64::MAX).then_some(at), ..Plan::default() });
            if let Ok((journal, ..)) = open(&disk, config) {
                for round in 0..6 {
                    if !append(&journal, &mut model, 1 + round % 3) {
                        break;
                    }
                    if round % 3 == 2 {
                        let mark = journal.last().expect("it is open");
                        let part: Vec<u8> =
                            model.committed.iter().flat_map(|number| number.to_le_bytes()).collect();
                        if journal.compact(mark, [part]).is_err() {
                            break;
                        }
                    }
                }
                let _ = journal.close();
            }
            if steps == u64::MAX {
                steps = disk.steps();
                assert!(steps > 40, "a life has many steps: {steps}");
            }
            disk.power_on();
            let (_, _, found) = open(&disk, config).expect("it opens");
            model.check(&found, false, at * 8 + seed);
        }
        at += 1;
    }
}

/// A full disk costs the records that find no room, and no others.
#[test]
fn a_disk_that_was_full_takes_records_again() {
    for bare in [false, true] {
        let disk = SimulatedDisk::new(1);
        let (journal, ..) = open(&disk, Config::default()).expect("it opens");
        let mut model = Model::default();
        assert!(append(&journal, &mut model, 3));
        let (used, size) = (disk.content(Path::new(PATH)).len() as u64, journal.size().expect("open"));
        // Room for the first part of it, if none can be taken ahead.
        disk.plan(Plan { capacity: Some(used + 40), bare, short: true, ..Plan::default() });
        for _ in 0..3 {
            let error = journal.append(&[1; 1000]).expect_err("no room");
            assert_eq!((error.code(), error.os_error()), (Code::OutOfDisk, Some(28)));
        }
        disk.plan(Plan::default());
        assert_eq!(journal.size().expect("open"), size, "what failed takes no room");
        assert!(append(&journal, &mut model, 2));
        drop(journal);
        let (_, recovered, found) = open(&disk, Config::default()).expect("it opens");
        model.check(&found, false, 0);
        assert_eq!((recovered.was_closed, recovered.dropped), (true, None));
    }
}

#[test]
fn a_disk_that_failed_ends_the_journal_until_it_is_opened_again() {
    let disk = SimulatedDisk::new(2);
    let (journal, ..) = open(&disk, Config::default()).expect("it opens");
    let mut model = Model::default();
    assert!(append(&journal, &mut model, 3));
    // The write, then its sync, while another record gathers for the next batch.
    disk.plan(Plan { fail_at: Some(2), ..Plan::default() });
    let late = Arc::new(Mutex::new(None));
    disk.at_next_sync({
        let (journal, late) = (journal.clone(), Arc::clone(&late));
        move || *late.lock() = Some(journal.begin([&b"late"[..]]).expect("begun"))
    });
    assert!(!append(&journal, &mut model, 1));
    for error in [
        journal.append(b"x").expect_err("failed"),
        journal.sync().expect_err("failed"),
        journal.last().map(|_| ()).expect_err("failed"),
        journal.close().expect_err("failed"),
    ] {
        assert_eq!((error.code(), error.os_error()), (Code::JournalFailed, Some(5)), "{}", error.report());
    }
    let late = late.lock().take().expect("begun");
    let error = journal.finish(&late).expect_err("no thread writes it any more");
    assert_eq!(error.code(), Code::JournalFailed, "{}", error.report());
    disk.power_on();
    let (_, _, found) = open(&disk, Config::default()).expect("it opens");
    model.check(&found, false, 2);
}

#[test]
fn a_journal_has_its_bound_and_compacting_makes_room() {
    let disk = SimulatedDisk::new(3);
    let (journal, ..) = open(&disk, Config { max_bytes: 600, ..Config::default() }).expect("it opens");
    let mut count = 0;
    let error = loop {
        match journal.append(&[7; 40]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error.code(), count), (Code::JournalFull, (600 - 64) / 72));
    assert_eq!(journal.size().expect("open"), 64 + count * 72);
    let mark = journal.last().expect("open");
    assert_eq!(mark, count);
    let error = journal.compact(mark, [[0; 600]]).expect_err("too large");
    assert_eq!(error.code(), Code::OutOfDisk, "{}", error.report());
    assert_eq!(disk.files(), 1, "the draft is gone");
    journal.compact(mark, [b"all of them"]).expect("room");
    assert_eq!(journal.append(&[8; 40]).expect("room"), count + 1);
    let mut found = Vec::new();
    drop(journal);
    let each = |record: Record<'_>| {
        found.push((record.sequence, record.is_snapshot, record.payload.len()));
        Ok(())
    };
    let _ = Journal::open_on(disk, Path::new(PATH), Config::default(), each).expect("it opens");
    assert_eq!(found, [(count, true, 11), (count + 1, false, 40)]);
}

#[test]
fn an_interval_syncs_later_and_the_end_of_the_program_costs_nothing() {
    let disk = SimulatedDisk::new(4);
    let hour = Durability::Interval(std::time::Duration::from_secs(3600));
    let (journal, ..) = open(&disk, Config { durability: hour, ..Config::default() }).expect("it opens");
    let before = disk.syncs();
    let mut model = Model::default();
    for _ in 0..50 {
        assert!(append(&journal, &mut model, 1));
    }
    assert_eq!(disk.syncs(), before);
    // Nobody drops it: the program is gone.
    std::mem::forget(journal);
    disk.unlock();
    let (journal, _, found) = open(&disk, Config::default()).expect("it opens");
    model.check(&found, false, 4);
    journal.sync().expect("synced");
}

/// Between opening a file and locking it, the journal is compacted by another program.
#[test]
fn a_file_that_lost_its_name_meanwhile_is_not_the_journal() {
    let disk = SimulatedDisk::new(5);
    let mut model = Model::default();
    let (journal, ..) = open(&disk, Config::default()).expect("it opens");
    assert!(append(&journal, &mut model, 2));
    drop(journal);
    let old = disk.content(Path::new(PATH));
    let (journal, ..) = open(&disk, Config::default()).expect("it opens");
    assert!(append(&journal, &mut model, 2));
    drop(journal);
    disk.put_when_locked(Path::new(PATH), &old);
    let (_, _, found) = open(&disk, Config::default()).expect("it opens");
    model.check(&found, false, 5);
    assert_eq!(found, [0, 1, 2, 3]);
}

/// The mark that an opening leaves needs room, and the records can be read without it.
#[test]
fn a_journal_opens_on_a_full_disk() {
    for bare in [false, true] {
        let disk = SimulatedDisk::new(6);
        let (journal, ..) = open(&disk, Config::default()).expect("it opens");
        let mut model = Model::default();
        assert!(append(&journal, &mut model, 3));
        let size = journal.size().expect("open");
        std::mem::forget(journal);
        disk.unlock();
        let bytes = disk.content(Path::new(PATH));
        let disk = SimulatedDisk::new(7);
        disk.put(Path::new(PATH), &bytes[..usize::try_from(size).expect("small")]);
        disk.plan(Plan { capacity: Some(size), bare, short: true, ..Plan::default() });
        let (journal, recovered, found) = open(&disk, Config::default()).expect("it opens");
        model.check(&found, false, 6);
        assert_eq!((recovered.was_closed, journal.size().expect("open")), (false, size));
        disk.plan(Plan::default());
        assert!(append(&journal, &mut model, 2));
        drop(journal);
        let (_, recovered, found) = open(&disk, Config::default()).expect("it opens");
        model.check(&found, false, 6);
        assert!(recovered.was_closed);
    }
}

/// The mark of an opening or a compaction does not count as a close.
#[test]
fn a_mark_is_no_close_and_no_record() {
    let disk = SimulatedDisk::new(8);
    for is_compacted in [false, true] {
        let (journal, ..) = open(&disk, Config::default()).expect("it opens");
        journal.append(&payload(journal.last().expect("open"), None)).expect("appended");
        if is_compacted {
            let parts: Vec<u8> = (0..2_u64).flat_map(u64::to_le_bytes).collect();
            journal.compact(2, [parts]).expect("compacted");
        }
        std::mem::forget(journal);
        disk.unlock();
        for _ in 0..2 {
            let (journal, recovered, found) = open(&disk, Config::default()).expect("it opens");
            assert_eq!((recovered.records, recovered.was_closed, recovered.dropped), (1, false, None));
            assert_eq!(found.len() as u64, journal.last().expect("open"));
            std::mem::forget(journal);
            disk.unlock();
        }
    }
    let (journal, ..) = open(&disk, Config::default()).expect("it opens");
    journal.close().expect("closed");
    let (_, recovered, _) = open(&disk, Config::default()).expect("it opens");
    assert!(recovered.was_closed);
}

/// A draft that another program is making keeps its name, also when the compaction fails for it.
#[test]
fn a_draft_that_is_locked_is_left_alone() {
    use crate::disk::Disk as _;
    let disk = SimulatedDisk::new(9);
    let (journal, ..) = open(&disk, Config::default()).expect("it opens");
    let draft = disk.create(&Path::new(PATH).with_extension("ropewalk-draft")).expect("made");
    let error = journal.compact(0, [b"x"]).expect_err("busy");
    assert_eq!((error.code(), disk.files()), (Code::JournalError, 2), "{}", error.report());
    drop(draft);
    journal.compact(0, [b"x"]).expect("a stale draft is replaced");
    assert_eq!(disk.files(), 1);
    drop(journal);
    let path = Path::new("other.ropewalk-draft");
    let error = Journal::open_on(disk.clone(), path, Config::default(), |_| Ok(())).err().expect("refused");
    assert_eq!((error.code(), disk.files()), (Code::JournalError, 1), "{}", error.report());
}

#[test]
fn a_panic_with_the_writer_ends_the_journal_and_nobody_waits_for_ever() {
    let panic = || panic!("in a sync");
    for is_compacting in [false, true] {
        let disk = SimulatedDisk::new(10);
        let (journal, ..) = open(&disk, Config::default()).expect("it opens");
        disk.at_next_sync(panic);
        let error = match is_compacting {
            false => journal.append(b"x").expect_err("panicked"),
            true => journal.compact(0, [b"x"]).expect_err("panicked"),
        };
        assert_eq!(error.code(), Code::JournalFailed, "{}", error.report());
        assert_eq!(journal.append(b"y").expect_err("failed").code(), Code::JournalFailed);
        assert_eq!(journal.close().expect_err("failed").code(), Code::JournalFailed);
        let again = Journal::open_on(disk, Path::new(PATH), Config::default(), |_| Ok(()));
        assert!(again.is_ok(), "it was let go");
    }
}

#[test]
fn times_that_the_clock_has_no_room_for_are_an_hour() {
    for durability in
        [Durability::Group(std::time::Duration::MAX), Durability::Interval(std::time::Duration::MAX)]
    {
        let disk = SimulatedDisk::new(11);
        let (journal, ..) = open(&disk, Config { durability, ..Config::default() }).expect("it opens");
        // Company enough: a batch of 64 is not waited for.
        let payloads = [&[0; 9][..]; 64];
        assert_eq!(journal.append_all(payloads).expect("appended"), 64);
        journal.close().expect("closed");
    }
}
