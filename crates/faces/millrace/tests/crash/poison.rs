//! A poison event: its handler aborts the process. The events prefetched beside it, and the events of another handler,
//! are still handled; only this event becomes a dead letter.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use millrace::{Config, DeadLettered, Event, Handler, Session};
use millrace_admin::{Admin, ClaimView, EventView, Status};
use serde::{Deserialize, Serialize};

use crate::process::{Crew, Place};
use crate::{Draw, check};

const STORE: &str = "MILLRACE_POISON_STORE";
const CONCURRENCY: &str = "MILLRACE_POISON_CONCURRENCY";
const ATTEMPTS_MAX: u32 = 10;
const PROCESSES: usize = 4;
const KILLS: usize = 40;
/// The longest pause between two kills.
const PAUSE_MS_MAX: u64 = 400;

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Job {
    n: u64,
    ends_its_process: bool,
    lasts_ms: u64,
}

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Chore {
    n: u64,
    lasts_ms: u64,
}

fn config(concurrency: usize) -> Config {
    Config {
        handler_concurrency: concurrency,
        event_max_attempts: ATTEMPTS_MAX,
        event_claim_lease_ms: 1000,
        ..Config::default()
    }
}

fn handlers() -> Vec<Handler> {
    let work = Handler::from_fn::<Job>("work", |ctx| {
        if ctx.event.ends_its_process {
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(ctx.event.lasts_ms));
        Ok(())
    });
    let tidy = Handler::from_fn::<Chore>("tidy", |ctx| {
        std::thread::sleep(Duration::from_millis(ctx.event.lasts_ms));
        Ok(())
    });
    vec![work, tidy]
}

/// Runs in the child processes. Returns at once without the variable `STORE`, so it does nothing in a normal test run.
#[test]
fn child() {
    let Ok(url) = std::env::var(STORE) else { return };
    let concurrency = std::env::var(CONCURRENCY).unwrap().parse().unwrap();
    let session = Session::builder(&url).config(config(concurrency)).open().unwrap();
    let running = session.spawn(handlers(), vec![]).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    running.stop().unwrap();
}

struct Scene {
    place: Place,
    session: Session,
    admin: Admin,
    concurrency: usize,
}

impl Scene {
    /// Publishes `jobs` jobs and `chores` chores. The job in the middle aborts its process.
    fn new(concurrency: usize, jobs: u64, chores: u64, lasts_ms: u64) -> Scene {
        let place = Place::new();
        let session = Session::builder(&place.url()).config(config(concurrency)).open().unwrap();
        let job = |n| Job { n, ends_its_process: n == jobs / 2, lasts_ms };
        session.publish_all((0..jobs).map(job)).unwrap();
        session.publish_all((0..chores).map(|n| Chore { n, lasts_ms })).unwrap();
        let admin = Admin::new(place.store());
        Scene { place, session, admin, concurrency }
    }

    fn crew(&self, processes: usize) -> Crew<'_> {
        let concurrency = self.concurrency.to_string();
        let env = [(STORE, self.place.url()), (CONCURRENCY, concurrency)];
        Crew::start(&self.place, "poison::child", env.into(), processes)
    }

    /// Returns whether every event has ended. The claims are checked too: while no living process has registered the
    /// handlers (none has started yet, or the last one's session has expired), no event counts as unfinished.
    fn is_finished(&self) -> bool {
        let is_open = |claim: &ClaimView| matches!(claim.status, Status::Pending | Status::Claimed);
        let ended = |view: &EventView| {
            let told = view.event.stream.topic.topic() == DeadLettered::TYPE;
            told || !view.claims.is_empty() && !view.claims.iter().any(is_open)
        };
        check::unfinished(&self.admin, &self.session) == 0 && self.events().iter().all(ended)
    }

    fn events(&self) -> Vec<EventView> {
        self.admin.events(self.session.namespace_name(), 1000, self.session.now()).unwrap()
    }

    /// Checks that there is one dead letter and that everything else is acknowledged. Returns the most attempts that
    /// any acknowledged event lost.
    fn verdict(&self, jobs: u64, chores: u64) -> u32 {
        let letters = self.admin.dead_letters(self.session.namespace_name(), 1000).unwrap();
        let [(_, letter)] = &letters[..] else { panic!("{} dead letters: {letters:?}", letters.len()) };
        assert!(letter.payload.as_ref().unwrap().contains(r#""ends_its_process":true"#), "{letter:?}");
        assert_eq!(letter.attempts, ATTEMPTS_MAX);
        let events = self.events();
        let (mut acked, mut most) = (BTreeMap::new(), 0);
        for claim in events.iter().flat_map(|view| &view.claims) {
            match claim.status {
                Status::Acked => {
                    *acked.entry(claim.handler_id.clone()).or_insert(0) += 1;
                    most = most.max(claim.attempts);
                }
                Status::DeadLettered => {}
                Status::Pending | Status::Claimed | Status::Lost | Status::Discarded => panic!("{claim:?}"),
            }
        }
        assert_eq!(acked, [("tidy".to_owned(), chores), ("work".to_owned(), jobs - 1)].into());
        check::doctor(&self.place.url());
        most
    }
}

/// The simple case: one process that is restarted whenever it ends.
#[test]
fn one_process_that_one_event_ends_again_and_again() {
    let scene = Scene::new(1, 100, 50, 0);
    let mut crew = scene.crew(1);
    let mut crashes = 0;
    while !scene.is_finished() {
        crashes += crew.replace_aborted();
        std::thread::sleep(Duration::from_millis(5));
    }
    crew.stop();
    let most = scene.verdict(100, 50);
    assert!(most <= 1, "a neighbour lost {most} attempts");
    println!("{crashes} crashes, at most {most} attempts lost by a neighbour");
}

#[test]
fn forty_kills_and_an_event_that_ends_its_process_leave_one_dead_letter() {
    let mut draw = Draw::seeded();
    let scene = Scene::new(8, 101, 50, 100);
    let mut crew = scene.crew(PROCESSES);
    let (mut crashes, mut kills) = (0, 0);
    while crashes + kills < KILLS || !scene.is_finished() {
        std::thread::sleep(Duration::from_millis(draw.below(PAUSE_MS_MAX)));
        crashes += crew.replace_aborted();
        if crashes + kills < KILLS {
            match crew.kill_and_replace(draw.below(PROCESSES as u64) as usize) {
                true => kills += 1,
                false => crashes += 1,
            }
        }
    }
    crew.stop();
    let most = scene.verdict(101, 50);
    println!("{crashes} crashes, {kills} kills, at most {most} attempts lost by a neighbour");
}
