//! Handlers that use the bus during a delivery and when they are dropped.

#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_bus::{Bus, Config, PublishError, Subscription};
use ropewalk_sync::Mutex;

/// Holds a subscription that its own handler ends.
type Slot = Arc<Mutex<Vec<Subscription>>>;

fn count(counter: &Arc<AtomicUsize>) -> impl Fn(&u32) + Send + Sync + use<> {
    let counter = Arc::clone(counter);
    move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Empties a slot; what was in it is dropped without the slot's lock.
fn empty(slot: &Slot) {
    let all = std::mem::take(&mut *slot.lock());
    drop(all);
}

fn fill(slot: &Slot, subscription: Subscription) {
    slot.lock().push(subscription);
}

#[test]
fn a_handler_that_ends_itself_is_called_once() {
    let (bus, slot, calls) = (Bus::new(), Slot::default(), Arc::new(AtomicUsize::new(0)));
    let held = Arc::new(());
    let kept = Arc::downgrade(&held);
    let (own, counted) = (Arc::clone(&slot), count(&calls));
    let once = bus.subscribe("t", move |event: &u32| {
        empty(&own);
        counted(event);
        assert_eq!(Arc::strong_count(&held), 1, "alive until it returns");
    });
    fill(&slot, once.expect("open"));
    for event in 0..3_u32 {
        bus.publish("t", &event).expect("open");
        assert_eq!(kept.strong_count(), 0, "freed when the delivery ended");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn whoever_is_ended_by_one_before_it_gets_nothing_of_that_delivery() {
    let (bus, slot) = (Bus::new(), Slot::default());
    let (before, after) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    fill(&slot, bus.listen("t").priority(2).call(count(&before)).expect("open"));
    let victims = Arc::clone(&slot);
    let _ends = bus.listen("t").priority(1).call(move |_: &u32| empty(&victims)).expect("open");
    fill(&slot, bus.listen("t").priority(0).call(count(&after)).expect("open"));
    let stays = Arc::new(AtomicUsize::new(0));
    let _stays = bus.listen("t").priority(-1).call(count(&stays)).expect("open");
    bus.publish("t", &0_u32).expect("open");
    let counts = [&before, &after, &stays].map(|counter| counter.load(Ordering::Relaxed));
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn ending_and_closing_hold_for_every_level_of_a_nested_delivery() {
    let (bus, slot) = (Bus::new(), Slot::default());
    let last = Arc::new(AtomicUsize::new(0));
    let (inner, victims) = (bus.clone(), Arc::clone(&slot));
    let nested = bus.listen("outer").priority(1).call(move |event: &u32| {
        inner.publish("inner", event).expect("open");
    });
    let ends = bus.subscribe("inner", move |_: &u32| empty(&victims)).expect("open");
    fill(&slot, bus.subscribe("outer", count(&last)).expect("open"));
    bus.publish("outer", &0_u32).expect("open");
    assert_eq!(last.load(Ordering::Relaxed), 0, "ended two levels below");
    drop((nested, ends));

    let closes = bus.clone();
    bus.listen("t").priority(1).call(move |_: &u32| closes.close()).expect("open").detach();
    bus.subscribe("t", count(&last)).expect("open").detach();
    bus.publish("t", &0_u32).expect("it was open when it began");
    assert_eq!(last.load(Ordering::Relaxed), 0);
    assert_eq!(bus.publish("t", &0_u32), Err(PublishError::Closed));
}

#[test]
fn whoever_subscribes_during_a_delivery_gets_the_next_event_first() {
    let (bus, slot, calls) = (Bus::new(), Slot::default(), Arc::new(AtomicUsize::new(0)));
    let (grow, place, counter) = (bus.clone(), Arc::clone(&slot), Arc::clone(&calls));
    let _grows = bus.subscribe("t", move |_: &u32| {
        for priority in [-1, 1] {
            let newcomer = grow.listen("t").priority(priority).call(count(&counter)).expect("open");
            fill(&place, newcomer);
        }
    });
    for expected in [0, 2, 6, 12] {
        bus.publish("t", &0_u32).expect("open");
        assert_eq!(calls.load(Ordering::Relaxed), expected);
    }
    empty(&slot);
}

/// Publishes the next number below its own, as deep as the bus permits.
fn runaway(bus: &Bus, by_name: bool) -> (Subscription, Arc<Mutex<Vec<PublishError>>>) {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let (again, topic, noted) = (bus.clone(), bus.topic::<u32>("t").expect("sound"), Arc::clone(&errors));
    let subscription = bus.subscribe("t", move |event: &u32| {
        let next = event + 1;
        let published = if by_name { again.publish("t", &next) } else { topic.publish(&next) };
        if let Err(error) = published {
            noted.lock().push(error);
        }
    });
    (subscription.expect("open"), errors)
}

#[test]
fn a_runaway_recursion_ends_with_an_error_and_the_bus_goes_on() {
    for (asked, most) in [(0, 1), (1, 1), (7, 7), (64, 64), (usize::MAX, 64)] {
        for by_name in [false, true] {
            let bus = Bus::with(Config { max_depth: asked, ..Config::default() });
            let (subscription, errors) = runaway(&bus, by_name);
            for round in 1..=3 {
                bus.publish("t", &0_u32).expect("this one arrived");
                let noted = errors.lock().clone();
                assert_eq!(noted, vec![PublishError::TooDeep { most }; round], "{asked} {by_name}");
            }
            assert_eq!(bus.statistics().published, 3 * most as u64);
            drop(subscription);
            let (topic, calls) = (bus.topic("t").expect("sound"), Arc::new(AtomicUsize::new(0)));
            let _other = bus.subscribe("t", count(&calls)).expect("open");
            topic.publish(&0_u32).expect("open");
            bus.publish("t", &0_u32).expect("open");
            assert_eq!(calls.load(Ordering::Relaxed), 2);
        }
    }
}

#[test]
fn a_topic_reports_listeners_at_the_greatest_depth() {
    let bus = Bus::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (again, noted) = (bus.clone(), Arc::clone(&heard));
    let (here, elsewhere) = (bus.topic::<u32>("t").expect("sound"), bus.topic::<u32>("u").expect("sound"));
    let _asks = bus.subscribe("t", move |_: &u32| {
        noted.lock().push((here.has_listeners(), elsewhere.has_listeners()));
        let _ = again.publish("t", &0_u32);
    });
    bus.publish("t", &0_u32).expect("open");
    assert_eq!(*heard.lock(), [(true, false); 64]);
}

/// Uses the bus when it is dropped.
struct Farewell {
    bus: Bus,
    other: Option<Subscription>,
    said: Arc<AtomicUsize>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        drop(self.other.take());
        drop(self.bus.subscribe("t", |_: &u32| ()));
        let published = self.bus.publish("farewell", &0_u32);
        let _ = self.bus.statistics();
        self.said.fetch_add(usize::from(published.is_ok()), Ordering::Relaxed);
    }
}

fn with_farewell(bus: &Bus, said: &Arc<AtomicUsize>) -> Subscription {
    let other = Some(bus.subscribe("t", |_: &u32| ()).expect("open"));
    let farewell = Farewell { bus: bus.clone(), other, said: Arc::clone(said) };
    let own = move |_: &u32| {
        let _ = &farewell;
    };
    bus.subscribe("t", own).expect("open")
}

#[test]
fn what_a_handler_owns_may_come_back_to_the_bus_when_it_is_dropped() {
    let (bus, said) = (Bus::new(), Arc::new(AtomicUsize::new(0)));
    let heard = Arc::new(AtomicUsize::new(0));
    let _listens = bus.subscribe("farewell", count(&heard)).expect("open");

    drop(with_farewell(&bus, &said));
    assert_eq!(said.load(Ordering::Relaxed), 1, "dropped by its owner");

    let slot = Slot::default();
    fill(&slot, with_farewell(&bus, &said));
    let victims = Arc::clone(&slot);
    let ends = bus.listen("t").priority(1).call(move |_: &u32| empty(&victims)).expect("open");
    bus.publish("t", &0_u32).expect("open");
    assert_eq!(said.load(Ordering::Relaxed), 2, "dropped at the end of a delivery");
    drop(ends);
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    assert_eq!(bus.statistics().subscribers, 1);

    with_farewell(&bus, &said).detach();
    bus.close();
    assert_eq!(said.load(Ordering::Relaxed), 2, "dropped by a close: the bus refuses it");
    assert_eq!(heard.load(Ordering::Relaxed), 2);
}
