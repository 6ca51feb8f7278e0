//! A request and its answer, by one thread that owns both ends.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use crate::place::{Side, settle};
use crate::roundtrip::{BATCHES, median, require};
use crate::{End, Kind, Outcome, Peer, Plan};

/// Microseconds for one round trip.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<(&'static str, f64)> {
    settle(plan.place, Side::Client)?;
    let (size, batch, body) = (plan.size, (plan.count / BATCHES).max(1), plan.body());
    let times = P::drive(async {
        let hub = P::hub();
        let bound = plan.bound();
        // Together, because some peers' bind ends only when somebody has connected.
        let (server, client) =
            both(P::open(&hub, Kind::Rep, &bound), P::open(&hub, Kind::Req, &plan.link)).await;
        let (mut server, mut client) = (server?, client?);
        let mut times = Vec::with_capacity(BATCHES);
        for turn in 0..=BATCHES {
            let began = Instant::now();
            for _ in 0..batch {
                client.send(body).await?;
                client.flush().await?;
                require(server.take(size, 1).await?)?;
                server.send(body).await?;
                server.flush().await?;
                require(client.take(size, 1).await?)?;
            }
            if turn > 0 {
                times.push(began.elapsed().as_secs_f64() * 1e6 / batch as f64);
            }
        }
        std::mem::forget((server, client, hub));
        Outcome::Ok(times)
    })?;
    Ok(("us", median(times)))
}

/// Waits for both.
async fn both<A, B>(left: impl Future<Output = A>, right: impl Future<Output = B>) -> (A, B) {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(value) = left.as_mut().poll(context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = right.as_mut().poll(context)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.expect("it was waited for"), second.expect("it was waited for"))
}
