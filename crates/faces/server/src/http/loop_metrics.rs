//! The figures of the CQRS loop in `GET /metrics`.

use millrace_kernel::KernelView;

use crate::http::prometheus::Page;

pub(crate) fn write_os(page: &mut Page, view: &KernelView) {
    let KernelView { counters, gauges, shell } = view;
    for (name, help, value) in [
        ("os_turns_total", "Turns of the CQRS loop.", counters.turns),
        ("os_requests_total", "Commands and queries of clients.", counters.requests),
        (
            "os_internal_requests_total",
            "Commands and queries of capabilities and timers.",
            counters.internal_requests,
        ),
        ("os_events_total", "Events the loop fanned out.", counters.events),
        ("os_events_unheard_total", "Events nobody listens to.", counters.events_unheard),
        ("os_events_undelivered_total", "Events a listener could not take.", counters.events_undelivered),
        ("os_timers_lost_total", "Timers that could not send what they were to send.", counters.timers_lost),
        ("os_timers_set_total", "Timers set.", counters.timers_set),
        ("os_timers_cancelled_total", "Timers cancelled.", counters.timers_cancelled),
        ("os_timers_fired_total", "Timers that fired.", counters.timers_fired),
        (
            "os_timers_refused_total",
            "Timers that were due and not sent, because their agent may not any more.",
            counters.timers_refused,
        ),
        ("os_orphan_outcomes_total", "Outcomes nobody waited for.", counters.orphan_outcomes),
        ("os_routing_errors_total", "Requests nobody handles.", counters.routing_errors),
        ("os_actor_faults_total", "Failures of capabilities.", counters.actor_faults),
        ("os_overloads_total", "Requests answered with 503 because something was full.", counters.overloads),
        (
            "os_notes_dropped_total",
            "Events about the loop itself that found no room.",
            counters.notes_dropped,
        ),
        ("os_lines_refused_total", "Lines of the socket that were no message.", shell.refused_lines),
        ("os_answers_too_long_total", "Answers replaced by 413.", shell.too_long_out),
        ("os_trace_records_lost_total", "Records of the kept trace that found no room.", shell.records_lost),
        ("os_connections_total", "Connections of the socket so far.", shell.connected),
        ("os_connections_refused_total", "Connections of the socket that found no room.", shell.turned_away),
        (
            "os_connections_dropped_slow_total",
            "Connections of the socket dropped because they did not read.",
            shell.dropped_slow,
        ),
    ] {
        page.single("counter", name, help, value);
    }
    page.head("counter", "os_outcomes_total", "Outcomes of requests, by class.");
    for (class, value) in [
        ("reply", counters.replies),
        ("error", counters.errors),
        ("refusal", counters.refusals),
        ("timeout", counters.timeouts),
    ] {
        page.labelled("os_outcomes_total", &[("class", class)], value);
    }
    for (name, help, value) in [
        ("os_connections", "Connections of the loop, WebSockets included.", gauges.connections),
        ("os_pending", "Requests that wait for their outcome.", gauges.pending),
        ("os_mailbox_messages", "Messages in mailboxes, those in hand included.", gauges.in_mailboxes),
        ("os_timers", "Timers set and not yet fired.", gauges.timers),
        ("os_capabilities", "Capabilities that run.", gauges.capabilities),
        ("os_capabilities_unhealthy", "Capabilities that are down.", gauges.unhealthy),
    ] {
        page.single("gauge", name, help, value as u64);
    }
    page.head("gauge", "os_lane_messages", "Messages that wait for their turn, by lane.");
    page.labelled("os_lane_messages", &[("lane", "system")], gauges.system_lane);
    page.labelled("os_lane_messages", &[("lane", "user")], gauges.user_lane);
}
