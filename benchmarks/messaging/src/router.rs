//! A ROUTER that echoes, and many DEALERs with one request each in flight.

use std::time::Instant;

use crate::place::{Side, beside, settle};
use crate::roundtrip::require;
use crate::{End, Kind, Outcome, Peer, Plan, Transport};

/// Round trips each second. One thread has the ROUTER, one has all DEALERs and serves them in turn.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<(&'static str, f64)> {
    let shared = (plan.link.transport == Transport::Inproc).then(P::hub);
    let (size, body, ends) = (plan.size, plan.body(), plan.link.ends);
    let turns = (plan.count / ends).max(1);

    let (link, hub) = (plan.bound(), shared.clone());
    let _router = beside::<P, ()>(plan.place, async move || {
        let hub = hub.unwrap_or_else(P::hub);
        let mut end = P::open(&hub, Kind::Router, &link).await?;
        loop {
            end.echo().await?;
        }
    });

    settle(plan.place, Side::Client)?;
    let rate = P::drive(async {
        let hub = shared.unwrap_or_else(P::hub);
        let mut dealers = Vec::with_capacity(ends);
        for _ in 0..ends {
            dealers.push(P::open(&hub, Kind::Dealer, &plan.link).await?);
        }
        for dealer in &mut dealers {
            dealer.send(body).await?;
        }
        // The first turns connect everybody and warm up.
        let warm = turns.div_ceil(10);
        let mut began = Instant::now();
        for turn in 0..warm + turns {
            if turn == warm {
                began = Instant::now();
            }
            for dealer in &mut dealers {
                require(dealer.take(size, 1).await?)?;
                dealer.send(body).await?;
            }
        }
        let rate = (turns * ends) as f64 / began.elapsed().as_secs_f64();
        std::mem::forget((dealers, hub));
        Outcome::Ok(rate)
    })?;
    Ok(("rate", rate))
}
