//! An event on its way through two processes on one file: published over WebSocket to a server, handled by a session of
//! this process, and what the handler emits is back at a subscriber of the server.

use std::time::{Duration, Instant};

use super::load::{HandledTally, Job, Work, handler};
use super::stage::HandlersStage;
use crate::bus::link::{WsLink, ack_frame, publish_frame};
use crate::bus::server::BenchServer;
use crate::error::BenchError;
use crate::figures::Latencies;

const GROUP: &str = "bench";
const WINDOW: u32 = 16;
/// Between two events, so that each finds both processes asleep, as events do that come now and then.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) fn run(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let server = BenchServer::start(&stage.options.program, stage.folder)?;
    let session = stage.open()?;
    let (tally, _reached) = HandledTally::new();
    let running = session.spawn(vec![handler(Work::Emit, &tally)], vec![])?;
    let (mut publisher, mut subscriber) = (WsLink::open(server.ws())?, WsLink::open(server.ws())?);
    subscriber.subscribe(Job::DONE_TOPIC, GROUP, "earliest", WINDOW)?;
    let frame = publish_frame(Job::TOPIC, &Job::new(0, stage.options.payload_bytes).json()?);
    let mut latencies = Latencies::default();
    stage.slices(|time| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::thread::sleep(PAUSE);
            let sent = Instant::now();
            publisher.feed(frame.clone())?;
            publisher.flush()?;
            publisher.published()?;
            let message = subscriber.message()?;
            latencies.push(sent.elapsed());
            subscriber.feed(ack_frame(Job::DONE_TOPIC, GROUP, message.envelope.offset.0))?;
            subscriber.flush()?;
        }
        Ok(begun.elapsed())
    })?;
    running.stop()?;
    server.stop()?;
    stage.out.add("roundtrip", "publish to emitted event p50", "ms", latencies.quantile_ms(0.5));
    stage.out.add("roundtrip", "publish to emitted event p99", "ms", latencies.quantile_ms(0.99));
    Ok(())
}
