//! An attempt to connect to a server.

use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::tls;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Most bytes of a refusal's body that are shown.
const DETAIL_BYTES_MAX: usize = 300;

pub(crate) async fn dial(endpoint: &Endpoint, options: &ClientOptions) -> Result<Socket, ClientError> {
    let shown = endpoint.to_string();
    let bad = |reason: String| ClientError::BadUrl { url: shown.clone(), reason };
    let url = endpoint.ws_url(&options.namespace);
    let mut request = url.as_str().into_client_request().map_err(|error| bad(error.to_string()))?;
    if let Some(token) = &options.token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| bad("the token holds characters that no header may hold".into()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(http::header::AUTHORIZATION, value);
    }
    let connector = endpoint.tls.then(|| tls::connector(options)).transpose()?;
    let disable_nagle = true;
    let unreachable = |reason| Err(ClientError::Unreachable { url: shown.clone(), reason });
    let connecting = connect_async_tls_with_config(request, None, disable_nagle, connector);
    match tokio::time::timeout(options.connect_timeout, connecting).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(tungstenite::Error::Http(response))) => Err(rejected(shown, &response)),
        Ok(Err(error)) => unreachable(reason_of(&error)),
        Err(_) => unreachable(format!("no answer within {} s", options.connect_timeout.as_secs_f32())),
    }
}

fn rejected(url: String, response: &http::Response<Option<Vec<u8>>>) -> ClientError {
    let body = response.body().as_deref().unwrap_or_default();
    let detail = serde_json::from_slice::<millrace_wire::http::Problem>(body)
        .map(|problem| problem.detail)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body[..body.len().min(DETAIL_BYTES_MAX)]).into_owned());
    ClientError::Rejected { url, status: response.status().as_u16(), detail }
}

fn reason_of(error: &tungstenite::Error) -> String {
    tls::in_plain_words(match error {
        tungstenite::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    })
}
