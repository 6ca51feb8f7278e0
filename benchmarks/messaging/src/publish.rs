//! PUB to one SUB or to several: deliveries each second, at the receivers, with nothing dropped.
//!
//! PUB drops where it cannot send. So that the figures are of messages that arrived, the publisher stays at
//! most a window ahead of the slowest subscriber, which is far below the high-water mark; both sides count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::pipeline::TAKEN;
use crate::place::{Side, beside, ended, settle};
use crate::{End, Kind, Outcome, Peer, Plan, Transport};

/// The high-water mark of both sides, for contenders that have one.
pub const HIGH_WATER: i32 = 100_000;

/// What the two sides know of each other.
#[derive(Default)]
struct Progress {
    /// Subscribers that have had a first message.
    joined: AtomicUsize,
    /// Messages that every subscriber has.
    received: AtomicUsize,
    over: AtomicBool,
}

/// Deliveries each second. PUB binds; one thread has all subscribers and takes from them in turn.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<(&'static str, f64)> {
    let shared = (plan.link.transport == Transport::Inproc).then(P::hub);
    let (size, body, ends) = (plan.size, plan.body(), plan.link.ends);
    let window = ((16 << 20) / size.max(1)).clamp(4 * TAKEN, HIGH_WATER as usize / 2);
    let (warm, count) = (plan.count / 10, plan.count);
    let progress = Arc::new(Progress::default());

    let (link, hub, seen) = (plan.link.clone(), shared.clone(), progress.clone());
    let receiver = beside::<P, _>(plan.place, async move || {
        let hub = hub.unwrap_or_else(P::hub);
        let mut subscribers = Vec::with_capacity(ends);
        for _ in 0..ends {
            subscribers.push(P::open(&hub, Kind::Sub, &link).await?);
        }
        for subscriber in &mut subscribers {
            subscriber.take(size, 1).await?;
            seen.joined.fetch_add(1, Ordering::Release);
        }
        let mut taken = vec![0; ends];
        let (mut goal, mut began) = (0, Instant::now());
        while goal < warm + count {
            if goal >= warm && goal < warm + TAKEN {
                began = Instant::now();
            }
            goal = (goal + TAKEN).min(warm + count);
            for (taken, subscriber) in taken.iter_mut().zip(&mut subscribers) {
                while *taken < goal {
                    *taken += subscriber.take(size, goal - *taken).await?;
                }
            }
            seen.received.store(goal, Ordering::Release);
        }
        let seconds = began.elapsed().as_secs_f64();
        seen.over.store(true, Ordering::Release);
        std::mem::forget((subscribers, hub));
        // The clock starts at the first whole turn after the warm messages.
        let counted = count - warm.next_multiple_of(TAKEN).saturating_sub(warm);
        Ok((counted * ends) as f64 / seconds)
    });

    settle(plan.place, Side::Client)?;
    P::drive(async {
        let hub = shared.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Pub, &plan.bound()).await?;
        // Of another size, so that they are in no count: nobody knows how many of them a subscriber misses.
        while progress.joined.load(Ordering::Acquire) < ends && !receiver.is_finished() {
            end.send(b"?").await?;
            end.flush().await?;
            P::pause().await;
        }
        let mut room = window;
        for sent in 0..warm + count {
            if sent == room {
                end.flush().await?;
                // Half of it free, and not one place, so that the two do not go in lock-step.
                while progress.received.load(Ordering::Acquire) + window / 2 < sent {
                    if receiver.is_finished() {
                        return Outcome::Ok(());
                    }
                    P::pause().await;
                }
                room = progress.received.load(Ordering::Acquire) + window;
            }
            end.send(body).await?;
        }
        end.flush().await?;
        while !progress.over.load(Ordering::Acquire) && !receiver.is_finished() {
            P::pause().await;
        }
        std::mem::forget((end, hub));
        Outcome::Ok(())
    })?;
    Ok(("rate", ended(receiver)?))
}
