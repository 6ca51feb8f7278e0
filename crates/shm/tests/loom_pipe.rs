//! Every interleaving of a pipe's protocols that the memory model allows, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-shm --release --test loom_pipe`

#![cfg(loom)]

use ropewalk_shm::channel::pipe::{self, Reader, Writer};
use ropewalk_sync::loom::{self, thread};
use ropewalk_sync::{Arc, Condvar, Mutex};

/// A wake-up: a descriptor that can be read until it is drained. A thread that sleeps for ever is a deadlock, which
/// loom reports.
#[derive(Default)]
struct Event {
    is_rung: Mutex<bool>,
    sleepers: Condvar,
}

impl Event {
    fn ring(&self) {
        *self.is_rung.lock() = true;
        self.sleepers.notify_one();
    }

    fn sleep(&self) {
        let mut is_rung = self.is_rung.lock();
        while !*is_rung {
            is_rung = self.sleepers.wait(is_rung);
        }
        *is_rung = false;
    }
}

/// Sends as the users of pipes do: wakes the reader when bytes are in, sleeps when there is no room.
fn send(writer: &mut Writer, mut bytes: &[u8], data: &Event, room: &Event) {
    while !bytes.is_empty() {
        let sent = writer.write(bytes).expect("the reader is sound");
        bytes = &bytes[sent..];
        if sent > 0 {
            if writer.must_wake_reader() {
                data.ring();
            }
        } else if writer.is_stuck().expect("the reader is sound") {
            room.sleep();
        }
    }
}

/// Wakes the writer when bytes are out, sleeps when there are none.
fn receive(reader: &mut Reader, count: usize, data: &Event, room: &Event) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let got = reader.read(&mut all, 4).expect("the writer is sound");
        if got > 0 {
            if reader.must_wake_writer() {
                room.ring();
            }
        } else if !reader.arm() {
            data.sleep();
            // As one that looks by itself for a while: the writer may have seen the request before.
            reader.disarm();
        }
    }
    all
}

fn model(capacity: usize, bytes: &'static [u8], at_once: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let (mut writer, mut reader) = pipe::model(capacity);
        let events = Arc::new((Event::default(), Event::default()));
        let far = Arc::clone(&events);
        let sender = thread::spawn(move || {
            for some in bytes.chunks(at_once) {
                send(&mut writer, some, &far.0, &far.1);
            }
        });
        assert_eq!(receive(&mut reader, bytes.len(), &events.0, &events.1), bytes);
        sender.join().expect("sent");
    });
}

#[test]
fn a_sleeping_reader_is_woken() {
    model(4, b"abc", 1);
}

#[test]
fn a_stuck_writer_is_woken() {
    model(2, b"abcd", 2);
}

#[test]
fn places_are_used_again() {
    model(2, b"abcde", 1);
}

#[test]
fn a_probe_sees_what_the_reader_would_read() {
    loom::model(|| {
        let (mut writer, mut reader) = pipe::model(4);
        let probe = reader.probe();
        let sender = thread::spawn(move || assert_eq!(writer.write(b"ab"), Ok(2)));
        if probe.has_bytes() {
            let mut some = Vec::new();
            assert_eq!(reader.read(&mut some, 4), Ok(2));
            assert!(some == b"ab" && !probe.has_bytes());
        }
        sender.join().expect("sent");
        assert_eq!(reader.has_bytes(), probe.has_bytes());
    });
}
