//! A session in a process of its own, beside the server: this test binary again, running one test by its name.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use millrace::{Entity, Event, Handler, Session};
use serde::{Deserialize, Serialize};

use crate::record::Recorder;

/// Does not begin with Millrace's own prefix, because those variables are settings.
const STORE: &str = "POWERCUT_STORE";
const SAID: &str = "committed ";

#[derive(Event, Clone, Serialize, Deserialize)]
struct OrderPlaced {
    order_id: String,
}

#[derive(Event, Clone, Serialize, Deserialize)]
struct OrderShipped {
    order_id: String,
}

#[derive(Entity, Clone, Serialize, Deserialize)]
pub struct Order {
    #[key]
    pub order_id: String,
    pub shipped: bool,
}

pub struct SessionProcess {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl SessionProcess {
    pub fn start(recorder: &Recorder, store: &Path) -> SessionProcess {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "session::child", "--nocapture", "--test-threads=1"])
            .env(STORE, format!("sqlite:///{}", store.display()))
            .envs(recorder.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        SessionProcess { child, said }
    }

    /// Returns the order of the next commit that has returned.
    pub fn committed(&mut self) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).expect("a pipe") > 0 {
            if let Some((_, order)) = line.split_once(SAID) {
                return order.trim().to_owned();
            }
            line.clear();
        }
        panic!("the session ended: {:?}", self.child.wait());
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }

    /// Stops the process: it stops when its standard input ends.
    pub fn stop(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("a pipe");
        assert!(self.child.wait().expect("the child can be waited for").success(), "{rest}");
    }
}

impl Drop for SessionProcess {
    fn drop(&mut self) {
        // If the process still runs, the test has failed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in the child process. Returns at once without the variable `STORE`, so it does nothing in a normal test run.
#[test]
fn child() {
    let Ok(url) = std::env::var(STORE) else { return };
    let ship = Handler::from_fn::<OrderPlaced>("ship", |ctx| {
        let order_id = ctx.event.order_id.clone();
        ctx.ensure(Order { order_id: order_id.clone(), shipped: true })?;
        ctx.commit_with(OrderShipped { order_id: order_id.clone() })?;
        println!("{SAID}{order_id}");
        Ok(())
    });
    let session = Session::open(&url).expect("a session");
    let running = session.spawn(vec![ship], vec![]).expect("handlers that run");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
    running.stop().expect("a session that stops");
}
