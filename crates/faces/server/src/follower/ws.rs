//! WebSockets on a server that follows: accepted like the leader's, told where the leader is, and closed with 1012. The
//! answer comes over the WebSocket because browsers hide the response of an upgrade that is refused.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::StreamExt;
use millrace_wire::ErrorCode;

use crate::access::{Caller, Refused};
use crate::follower::app::Via;
use crate::follower::{FollowerApp, SharedFollower};
use crate::http::console;
use crate::params::Params;
use crate::refusal::Refusal;
use crate::ws::close::{WsEnd, close_handshake};
use crate::ws::os::text;
use crate::ws::os_entrance::{self, check_scope};
use crate::ws::upgrade::{Socket, Upgrade};
use crate::ws::{Entrance, enter, hint, wants_socket};

/// `/`: a WebSocket if the client asks for one, otherwise the hint for people.
pub(crate) async fn root(
    state: State<SharedFollower>,
    caller: Caller,
    headers: HeaderMap,
    params: Params,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    if wants_socket(&headers) {
        return self::upgrade(state, caller, params, upgrade).await;
    }
    if console::wants_page(&state.edge, &headers) {
        return Ok(console::redirect("console/"));
    }
    Ok(hint())
}

pub(crate) async fn upgrade(
    State(app): State<SharedFollower>,
    caller: Caller,
    params: Params,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let (namespace, upgrade) = (params.namespace()?, upgrade?);
    let entrance = Entrance::of(&app.edge, &caller)?;
    Ok(upgrade.accept(async move |opened| {
        let mut caller = caller;
        let entered = enter(&app.edge, opened, entrance, &mut caller, &namespace).await;
        let Some((socket, _seat)) = entered else { return };
        let end = WsEnd::Moved(app.moved(Via::WebSocket));
        let frame = end.frame();
        goodbye(&app, &caller, "a WebSocket", socket, end, frame).await;
    }))
}

pub(crate) async fn upgrade_os(
    State(app): State<SharedFollower>,
    caller: Caller,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade?;
    check_scope(&caller)?;
    let entrance = Entrance::of(&app.edge, &caller)?;
    Ok(upgrade.accept(async move |opened| {
        let mut caller = caller;
        let stamp = || app.mint.stamp();
        let entered = os_entrance::enter(&app.edge, &stamp, opened, entrance, &mut caller).await;
        let Some((socket, _seat, _first)) = entered else { return };
        let moved = app.moved(Via::Os);
        let line = text(&moved.os_message(stamp()));
        goodbye(&app, &caller, "a WebSocket of /os", socket, WsEnd::Moved(moved), Some(line)).await;
    }))
}

/// Sends the frame and closes.
async fn goodbye(
    app: &FollowerApp,
    caller: &Caller,
    what: &str,
    socket: Socket,
    end: WsEnd,
    frame: Option<String>,
) {
    let (agent, peer, why) = (caller.agent(), Some(caller.peer.addr), "this server does not lead the store");
    let (namespace, topic, trace) = (None, None, None);
    app.edge.refused(&Refused {
        code: ErrorCode::Moved,
        agent,
        peer,
        what: &what,
        why,
        namespace,
        topic,
        trace,
    });
    let (sink, stream) = socket.split();
    close_handshake(end, frame, sink, stream, app.edge.closing.clone()).await;
}
