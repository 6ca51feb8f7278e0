//! What the documentation of the bus promises.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_bus::{Bus, Config, PublishError, SubscribeError, Subscription};
use ropewalk_sync::Mutex;

type Seen = Arc<Mutex<Vec<String>>>;

fn note(seen: &Seen, text: impl Into<String>) {
    seen.lock().push(text.into());
}

fn taken(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut seen.lock())
}

#[test]
fn priority_then_arrival() {
    let (bus, seen) = (Bus::new(), Seen::default());
    let listen = |name: &'static str, priority| {
        let seen = Arc::clone(&seen);
        bus.listen::<u32>("t").priority(priority).call(move |_| note(&seen, name)).expect("open")
    };
    let all = [listen("c", 0), listen("a", 9), listen("d", 0), listen("e", -1), listen("b", 9)];
    bus.publish("t", &1_u32).expect("open");
    assert_eq!(taken(&seen), ["a", "b", "c", "d", "e"]);
    drop(all);
    bus.publish("t", &1_u32).expect("open");
    assert!(taken(&seen).is_empty());
}

#[test]
fn patterns_types_and_filters() {
    let (bus, seen) = (Bus::new(), Seen::default());
    let of = |name: &'static str| {
        let seen = Arc::clone(&seen);
        move |text: &str| note(&seen, format!("{name} {text}"))
    };
    let _all = [
        bus.subscribe("a.*", of("star")).expect("open"),
        bus.subscribe("**", of("any")).expect("open"),
        bus.listen::<str>("a.b").filter(|text| text.len() > 2).call(of("long")).expect("open"),
    ];
    let other = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&other);
    let _numbers = bus.subscribe("**", move |number: &usize| {
        counter.fetch_add(*number, Ordering::Relaxed);
    });
    bus.publish("a.b", "hi").expect("open");
    bus.topic::<str>("a.b").expect("sound").publish("hello").expect("open");
    bus.publish("b", "x").expect("open");
    bus.publish("a.b", &5_usize).expect("open");
    assert_eq!(taken(&seen), ["star hi", "any hi", "star hello", "any hello", "long hello", "any x"]);
    assert_eq!(other.load(Ordering::Relaxed), 5);
    let statistics = bus.statistics();
    assert_eq!((statistics.published, statistics.filtered, statistics.subscribers), (4, 1, 4));
    let topics: Vec<_> =
        statistics.topics.iter().map(|topic| (topic.topic.as_str(), topic.published)).collect();
    assert_eq!(topics.len(), 3);
    assert!(topics.contains(&("a.b", 2)) && topics.contains(&("b", 1)), "{topics:?}");
}

#[test]
fn malformed_names_and_a_closed_bus_are_errors() {
    let bus = Bus::new();
    assert!(matches!(bus.publish("a..b", &1), Err(PublishError::Topic(_))));
    assert!(matches!(bus.topic::<u8>("*"), Err(PublishError::Topic(_))));
    assert!(matches!(bus.subscribe("a*", |_: &u8| ()), Err(SubscribeError::Pattern(_))));
    let topic = bus.topic::<u8>("t").expect("sound");
    bus.close();
    assert_eq!(topic.publish(&1), Err(PublishError::Closed));
    assert_eq!(bus.publish("new", &1), Err(PublishError::Closed));
    assert!(matches!(bus.subscribe("t", |_: &u8| ()), Err(SubscribeError::Closed)));
    assert_eq!(PublishError::Closed.to_string(), "the bus is closed");
    assert_eq!(SubscribeError::Closed.to_string(), "the bus is closed");
    let deep = PublishError::TooDeep { most: 7 }.to_string();
    assert!(deep.starts_with("handlers publish to handlers more than 7 deep; "), "{deep}");
    let topic = bus.publish("a..b", &1).expect_err("malformed").to_string();
    assert!(topic.starts_with("the topic \"a..b\" is malformed at byte 2: "), "{topic}");
    let pattern = bus.subscribe("a*", |_: &u8| ()).expect_err("malformed").to_string();
    assert!(pattern.starts_with("the pattern \"a*\" is malformed at byte 1: "), "{pattern}");
}

#[test]
fn handlers_take_themselves_and_others_away() {
    let (bus, seen) = (Bus::new(), Seen::default());
    let doomed: Arc<Mutex<Vec<Subscription>>> = Arc::default();
    let first = {
        let (seen, doomed) = (Arc::clone(&seen), Arc::clone(&doomed));
        move |_: &u8| {
            note(&seen, "first");
            let gone = std::mem::take(&mut *doomed.lock());
            drop(gone);
        }
    };
    let first = bus.subscribe("t", first).expect("open");
    let second = {
        let seen = Arc::clone(&seen);
        bus.subscribe("t", move |_: &u8| note(&seen, "second")).expect("open")
    };
    let third = {
        let seen = Arc::clone(&seen);
        bus.subscribe("t", move |_: &u8| note(&seen, "third")).expect("open")
    };
    doomed.lock().extend([first, third]);
    bus.publish("t", &1_u8).expect("open");
    bus.publish("t", &1_u8).expect("open");
    assert_eq!(taken(&seen), ["first", "second", "second"]);
    drop(second);
}

#[test]
fn a_handler_added_during_a_delivery_gets_the_next_event() {
    let (bus, seen) = (Bus::new(), Seen::default());
    let handler = {
        let (inner, seen) = (bus.clone(), Arc::clone(&seen));
        move |number: &u8| {
            if *number == 1 {
                let seen = Arc::clone(&seen);
                let late = inner.subscribe("t", move |number: &u8| note(&seen, number.to_string()));
                late.expect("open").detach();
            }
        }
    };
    let _subscription = bus.subscribe("t", handler).expect("open");
    bus.publish("t", &1_u8).expect("open");
    assert!(taken(&seen).is_empty());
    bus.publish("t", &2_u8).expect("open");
    assert_eq!(taken(&seen), ["2"]);
}

#[test]
fn publishing_without_end_is_stopped() {
    for by_name in [false, true] {
        let bus = Bus::with(Config { max_depth: 7, ..Config::default() });
        let (topic, inner) = (bus.topic::<u32>("t").expect("sound"), bus.clone());
        let again = topic.clone();
        let stopped: Arc<Mutex<Vec<(u32, PublishError)>>> = Arc::default();
        let noted = Arc::clone(&stopped);
        let _subscription = bus.subscribe("t", move |depth: &u32| {
            let next = depth + 1;
            let result = if by_name { inner.publish("t", &next) } else { again.publish(&next) };
            if let Err(error) = result {
                noted.lock().push((next, error));
            }
        });
        for _ in 0..2 {
            topic.publish(&1).expect("the first is fine");
            let stopped = std::mem::take(&mut *stopped.lock());
            assert_eq!(stopped, [(8, PublishError::TooDeep { most: 7 })]);
        }
        // The default is as deep as there are places, by name too.
        let bus = Bus::new();
        let (inner, deepest) = (bus.clone(), Arc::new(AtomicUsize::new(0)));
        let noted = Arc::clone(&deepest);
        let _subscription = bus.subscribe("t", move |depth: &usize| {
            noted.fetch_max(*depth, Ordering::Relaxed);
            let _ = inner.publish("t", &(depth + 1));
        });
        bus.publish("t", &1_usize).expect("the first is fine");
        assert_eq!(deepest.load(Ordering::Relaxed), 64);
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn panics_stay_where_they_are() {
    let (seen, reported) = (Seen::default(), Seen::default());
    let noted = Arc::clone(&reported);
    let config = Config {
        on_panic: Some(Arc::new(move |report| {
            note(&noted, format!("{} {:?}", report.topic, report.message()));
            if report.message().is_none() {
                panic!("the hook, too");
            }
        })),
        ..Config::default()
    };
    let bus = Bus::with(config);
    let after = || {
        let seen = Arc::clone(&seen);
        bus.subscribe("t", move |_: &u8| note(&seen, "after")).expect("open")
    };
    let _all = [
        bus.subscribe("t", |_: &u8| panic!("handler")).expect("open"),
        after(),
        bus.listen::<u8>("t").filter(|_| panic!("filter")).call(|_| ()).expect("open"),
        bus.subscribe("t", |_: &u8| std::panic::panic_any(Bomb)).expect("open"),
        after(),
    ];
    bus.publish("t", &1_u8).expect("open");
    assert_eq!(taken(&seen), ["after", "after"]);
    assert_eq!(taken(&reported), ["t Some(\"handler\")", "t Some(\"filter\")", "t None"]);
    assert_eq!(bus.statistics().panicked, 3);
    // The thread's depth is what it was: it can publish as deep as before.
    for _ in 0..100 {
        bus.publish("t", &1_u8).expect("open");
    }
}

#[test]
fn a_handler_may_use_the_bus_when_it_is_dropped() {
    struct Last(Bus, Seen);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.publish("last", &1_u8).expect("open");
            note(&self.1, "dropped");
        }
    }
    let (bus, seen) = (Bus::new(), Seen::default());
    let heard = Arc::clone(&seen);
    let _listener = bus.subscribe("last", move |_: &u8| note(&heard, "heard")).expect("open");
    let last = Last(bus.clone(), Arc::clone(&seen));
    let subscription = bus.subscribe("t", move |_: &u8| {
        let _ = &last;
    });
    drop(subscription);
    assert_eq!(taken(&seen), ["heard", "dropped"]);
}

#[test]
fn a_detached_handler_is_called() {
    let bus = Bus::new();
    let topic = bus.topic::<u8>("t").expect("sound");
    assert!(!topic.has_listeners());
    let subscription = bus.subscribe("*", |_: &u8| ()).expect("open");
    assert!(topic.has_listeners());
    drop(subscription);
    assert!(!topic.has_listeners());
    bus.subscribe("t", |_: &u8| ()).expect("open").detach();
    assert!(topic.has_listeners());
}

#[test]
fn one_name_has_a_topic_for_each_type() {
    let (bus, seen) = (Bus::new(), Arc::new(Mutex::new(Vec::new())));
    let [numbers, words] = [(); 2].map(|()| Arc::clone(&seen));
    let _numbers = bus.subscribe("t", move |number: &u64| numbers.lock().push(number.to_string()));
    let _words = bus.subscribe("t", move |word: &str| words.lock().push(word.to_owned()));
    for number in 0..3_u64 {
        bus.publish("t", &number).expect("open");
        bus.publish("t", "word").expect("open");
        bus.publish("t", &[0_u8; 3]).expect("open");
    }
    assert_eq!(*seen.lock(), ["0", "word", "1", "word", "2", "word"]);
    assert_eq!(bus.statistics().topics.len(), 3);
}

#[test]
fn more_topics_than_the_directory_lists() {
    let config = Config { most_listed: 40, ..Config::default() };
    let (bus, count) = (Bus::with(config), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    let _subscription = bus.subscribe("t.*", move |_: &u8| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let topics = 50;
    for number in 0..topics {
        bus.publish(&format!("t.{number}"), &1_u8).expect("open");
    }
    bus.publish(&format!("t.{}", topics - 1), &1_u8).expect("open");
    assert_eq!(count.load(Ordering::Relaxed), topics + 1);
    assert_eq!(bus.statistics().topics.len(), topics);
}

#[test]
#[expect(clippy::disallowed_types, reason = "a test's own threads")]
fn every_thread_counts_exactly() {
    let bus = Bus::new();
    let topic = bus.topic::<u8>("t").expect("sound");
    let _subscription = bus.subscribe("t", |_: &u8| ()).expect("open");
    let (threads, each) = if cfg!(miri) { (4, 10) } else { (24, 1000) };
    let barrier = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..each {
                    topic.publish(&1).expect("open");
                }
                barrier.wait();
            });
        }
    });
    let statistics = bus.statistics();
    assert_eq!((statistics.published, statistics.reached), (threads as u64 * each, threads as u64 * each));
}
