//! PUSH to PULL: messages each second, at the receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::place::{Side, beside, ended, settle};
use crate::{End, Kind, Outcome, Peer, Plan, Transport};

/// The most messages that one call may take.
pub(crate) const TAKEN: usize = 256;

/// Messages each second. PULL binds and counts; a tenth of the messages come before the clock starts.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<(&'static str, f64)> {
    let shared = (plan.link.transport == Transport::Inproc).then(P::hub);
    let (size, count, warm, body) = (plan.size, plan.count, plan.count / 10, plan.body());
    let done = Arc::new(AtomicBool::new(false));

    let (link, hub, over) = (plan.bound(), shared.clone(), done.clone());
    let receiver = beside::<P, _>(plan.place, async move || {
        let hub = hub.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Pull, &link).await?;
        let mut taken = 0;
        while taken < warm {
            taken += end.take(size, TAKEN).await?;
        }
        let (began, before) = (Instant::now(), taken);
        while taken < warm + count {
            taken += end.take(size, TAKEN).await?;
        }
        let seconds = began.elapsed().as_secs_f64();
        over.store(true, Ordering::Release);
        std::mem::forget((end, hub));
        Ok((taken - before) as f64 / seconds)
    });

    settle(plan.place, Side::Client)?;
    P::drive(async {
        let hub = shared.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Push, &plan.link).await?;
        for _ in 0..warm + count {
            end.send(body).await?;
        }
        end.flush().await?;
        while !done.load(Ordering::Acquire) && !receiver.is_finished() {
            P::pause().await;
        }
        std::mem::forget((end, hub));
        Outcome::Ok(())
    })?;
    Ok(("rate", ended(receiver)?))
}
