//! A single consumer with a backlog: deliver, ack (cumulatively, every 100 events), until nothing is left.

use super::link::{WsLink, ack_frame, fill, payload};
use super::stage::BusStage;
use crate::error::BenchError;
use crate::probe::SLICES;

const WINDOW: u64 = 1024;
const ACK_EVERY: u64 = 100;
/// Backlog for each second of the requested duration: long enough to get past the first pages.
const BACKLOG_PER_SECOND: f64 = 100_000.0;

pub(crate) fn run(stage: &mut BusStage<'_>) -> Result<(), BenchError> {
    let topic = &format!("bench.consume{}", stage.suffix);
    let per_slice = ((stage.options.seconds * BACKLOG_PER_SECOND) as u64 / u64::from(SLICES)).max(1);
    let backlog = per_slice * u64::from(SLICES);
    fill(stage.server.ws(), topic, backlog, &payload(stage.options.payload_bytes), None)?;
    let window = WINDOW.min(per_slice);
    let mut link = WsLink::open(stage.server.ws())?;
    link.subscribe(topic, "g", "earliest", window as u32)?;
    let mut taken = 0;
    let busy = stage.slices(|_| {
        // The first ack of a slice opens the window, and the window is used up at the end of the slice: events that
        // arrived during a probe would cost no time.
        if taken > 0 {
            ack(&mut link, topic, taken)?;
        }
        let last = taken + per_slice;
        while taken < last {
            taken += 1;
            let message = link.message()?;
            if message.envelope.offset.0 != taken {
                return Err(BenchError::Unexpected(format!(
                    "offset {} for {taken}",
                    message.envelope.offset
                )));
            }
            let left = last - taken;
            if left == window || (left > window && taken % ACK_EVERY == 0) {
                ack(&mut link, topic, taken)?;
            }
        }
        Ok(())
    })?;
    stage.out.add("consume", "backlog, consume and ack", "events/s", backlog as f64 / busy.as_secs_f64());
    Ok(())
}

fn ack(link: &mut WsLink, topic: &str, offset: u64) -> Result<(), BenchError> {
    link.feed(ack_frame(topic, "g", offset))?;
    link.flush()
}
