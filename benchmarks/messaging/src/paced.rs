//! PUSH to PULL at a given rate: how long each message is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pipeline::TAKEN;
use crate::place::{Side, beside, ended, settle};
use crate::{End, Figures, Kind, Outcome, Peer, Plan, Transport};

/// A sender that has longer than this to the next message sleeps, and wakes this long before it is due.
const EARLY: Duration = Duration::from_micros(150);
/// The share of the messages that comes before the measured ones, as a divisor.
const WARM: usize = 5;

/// Microseconds from before the send until the receiver has the message: the half, nine tenths and 99 hundredths of all
/// messages took no longer. `burst` messages are sent in a row, and then none until the rate is met.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<Figures> {
    let shared = (plan.link.transport == Transport::Inproc).then(P::hub);
    let (size, count, body) = (plan.size, plan.count, plan.body());
    let (warm, burst, rate) = (count / WARM, plan.burst.max(1), plan.rate.max(1) as f64);
    let began = Instant::now();
    let now = move || began.elapsed().as_nanos() as u64;
    // One pair of ends keeps the order, so a message's place says when it was sent.
    let sent: Arc<[AtomicU64]> = (0..warm + count).map(|_| AtomicU64::new(0)).collect();

    let (link, hub, stamps) = (plan.bound(), shared.clone(), sent.clone());
    let receiver = beside::<P, _>(plan.place, async move || {
        let hub = hub.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Pull, &link).await?;
        let (mut taken, mut took) = (0, Vec::with_capacity(warm + count + TAKEN));
        while taken < warm + count {
            let more = end.take(size, TAKEN).await?;
            let at = now();
            for stamp in &stamps[taken..taken + more] {
                took.push(at.saturating_sub(stamp.load(Ordering::Acquire)));
            }
            taken += more;
        }
        std::mem::forget((end, hub));
        Ok((took, now()))
    });

    settle(plan.place, Side::Client)?;
    let start = P::drive(async {
        let hub = shared.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Push, &plan.link).await?;
        // The connection is made meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        let start = now();
        for (place, stamp) in sent.iter().enumerate() {
            let due = start + ((place - place % burst) as f64 / rate * 1e9) as u64;
            let left = Duration::from_nanos(due.saturating_sub(now()));
            if left > EARLY {
                std::thread::sleep(left - EARLY);
            }
            while now() < due {
                std::hint::spin_loop();
            }
            stamp.store(now(), Ordering::Release);
            end.send(body).await?;
            if place % burst == burst - 1 {
                end.flush().await?;
            }
        }
        end.flush().await?;
        while !receiver.is_finished() {
            P::pause().await;
        }
        std::mem::forget((end, hub));
        Outcome::Ok(start)
    })?;
    let (took, over) = ended(receiver)?;
    let mut measured = took[warm..].to_vec();
    measured.sort_unstable();
    let share = |share: f64| {
        let place = (share * measured.len() as f64) as usize;
        measured[place.min(measured.len() - 1)] as f64 / 1e3
    };
    let rate = (warm + count) as f64 / ((over - start) as f64 / 1e9);
    Ok(vec![("p50", share(0.5)), ("p90", share(0.9)), ("p99", share(0.99)), ("rate", rate)])
}
