//! A request and its answer of the same size, by two threads, one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::place::{Side, beside, ended, settle};
use crate::{End, Kind, Outcome, Peer, Plan, Transport};

/// Batches that are measured; their median counts.
pub(crate) const BATCHES: usize = 9;

/// Microseconds for one round trip.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<(&'static str, f64)> {
    let shared = (plan.link.transport == Transport::Inproc).then(P::hub);
    let batch = (plan.count / BATCHES).max(1);
    let (size, trips, body) = (plan.size, batch * (BATCHES + 1), plan.body());
    let done = Arc::new(AtomicBool::new(false));

    let (link, hub, over) = (plan.bound(), shared.clone(), done.clone());
    let server = beside::<P, _>(plan.place, async move || {
        let hub = hub.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Rep, &link).await?;
        for _ in 0..trips {
            require(end.take(size, 1).await?)?;
            end.send(body).await?;
            end.flush().await?;
        }
        // What was answered last may still be on its way.
        while !over.load(Ordering::Acquire) {
            P::pause().await;
        }
        std::mem::forget((end, hub));
        Ok(())
    });

    settle(plan.place, Side::Client)?;
    let times = P::drive(async {
        let hub = shared.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Req, &plan.link).await?;
        let mut times = Vec::with_capacity(BATCHES);
        for turn in 0..=BATCHES {
            let began = Instant::now();
            for _ in 0..batch {
                end.send(body).await?;
                end.flush().await?;
                require(end.take(size, 1).await?)?;
            }
            // The first is to warm up.
            if turn > 0 {
                times.push(began.elapsed().as_secs_f64() * 1e6 / batch as f64);
            }
        }
        done.store(true, Ordering::Release);
        std::mem::forget((end, hub));
        Outcome::Ok(times)
    })?;
    ended(server)?;
    Ok(("us", median(times)))
}

/// One message, of the right size.
pub(crate) fn require(taken: usize) -> Outcome<()> {
    if taken == 1 { Ok(()) } else { Err(format!("{taken} messages of the right size, and not one").into()) }
}

/// The middle of the values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
