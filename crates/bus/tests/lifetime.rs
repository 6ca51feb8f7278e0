//! What remains and what is freed when the bus is gone.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_bus::{Bus, Config, PanicReport, PublishError};
use ropewalk_sync::Mutex;

#[test]
fn the_last_bus_closes_behind_itself() {
    let (bus, calls) = (Bus::new(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&calls);
    let subscription = bus.subscribe("t", move |_: &u8| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let topic = bus.topic::<u8>("t").expect("sound");
    let other = bus.clone();
    drop(bus);
    topic.publish(&1).expect("one is left");
    drop(other);
    assert_eq!(topic.publish(&2), Err(PublishError::Closed));
    assert!(!topic.has_listeners());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&calls), 1, "the handler is freed, though its topic lives");
    drop(subscription);
}

#[test]
fn a_bus_that_is_gone_leaves_nothing_behind() {
    let hook: Arc<dyn Fn(&PanicReport<'_>) + Send + Sync> = Arc::new(|_| ());
    let bus = Bus::with(Config { on_panic: Some(Arc::clone(&hook)), ..Config::default() });
    let topic = bus.topic::<u8>("t").expect("sound");
    bus.publish("t", &1_u8).expect("open");
    bus.publish("by.name", &1_u8).expect("open");
    drop(bus);
    assert!(Arc::strong_count(&hook) > 1, "the topic has the settings still");
    drop(topic);
    assert_eq!(Arc::strong_count(&hook), 1, "the directory and the lists are freed");
}

#[test]
fn handlers_that_own_topics_go_with_the_bus() {
    let (bus, alive) = (Bus::new(), Arc::new(()));
    for (heard, spoken) in [("a", "b"), ("b", "a"), ("c", "c")] {
        let (topic, kept) = (bus.topic::<u8>(spoken).expect("sound"), Arc::clone(&alive));
        let handler = move |event: &u8| {
            let _ = &kept;
            let _ = topic.publish(event);
        };
        bus.subscribe(heard, handler).expect("open").detach();
    }
    assert_eq!(Arc::strong_count(&alive), 4);
    drop(bus);
    assert_eq!(Arc::strong_count(&alive), 1, "also those that hold each other");
}

#[test]
fn a_bus_may_end_in_the_middle_of_its_own_delivery() {
    let (bus, calls) = (Bus::new(), Arc::new(AtomicUsize::new(0)));
    let topic = bus.topic::<u8>("t").expect("sound");
    let last = Arc::new(Mutex::new(Some(bus.clone())));
    let (own, counter) = (Arc::clone(&last), Arc::clone(&calls));
    let ends = bus.listen("t").priority(1).call(move |_: &u8| {
        let bus = own.lock().take();
        drop(bus);
    });
    let after = bus.subscribe("t", move |_: &u8| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    drop(bus);
    topic.publish(&1).expect("it was open when it began");
    assert_eq!(topic.publish(&1), Err(PublishError::Closed));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!((Arc::strong_count(&last), Arc::strong_count(&calls)), (1, 1), "freed with the delivery");
    drop((ends, after));
}

#[test]
#[expect(clippy::disallowed_types, reason = "a test's own threads")]
fn what_a_delivery_kept_is_freed_when_it_ends() {
    let (bus, alive) = (Bus::new(), Arc::new(()));
    let topic = bus.topic::<u8>("t").expect("sound");
    let (begun, go) = (std::sync::Barrier::new(2), Arc::new(std::sync::Barrier::new(2)));
    let (kept, wait) = (Arc::clone(&alive), Arc::clone(&go));
    let subscription = bus.subscribe("t", move |_: &u8| {
        let _ = &kept;
        wait.wait();
        wait.wait();
    });
    std::thread::scope(|scope| {
        let delivery = scope.spawn(|| {
            begun.wait();
            topic.publish(&1)
        });
        begun.wait();
        go.wait(); // The handler runs.
        drop(subscription);
        assert_eq!(Arc::strong_count(&alive), 2, "it is not freed under the handler");
        // Others publish meanwhile.
        bus.publish("t", &2_u8).expect("open");
        assert_eq!(Arc::strong_count(&alive), 2);
        go.wait();
        delivery.join().expect("no panic").expect("open");
        assert_eq!(Arc::strong_count(&alive), 1, "no further publication is needed");
    });
}
