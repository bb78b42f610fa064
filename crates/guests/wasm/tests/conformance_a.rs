//! The event-loop specification's conformance table on the wasm path, generation A.

mod support;

use millrace_wasm::Generation;

conformance_tests!(Generation::A;
    resume_step_continues_with_the_value,
    tail_step_continues_with_the_value,
    tail_for_a_resume_op_fails_before_resumption,
    resume_or_end_for_a_tail_op_fails_before_resumption,
    a_plain_return_fails,
    early_host_completion_does_not_resume,
    missing_capability_fails_deterministically,
    async_handler_rejection_fails_with_its_reason,
    a_handler_that_panics_fails_only_its_run,
    explicit_cancellation_drops_late_completions,
    cancelling_an_ended_run_changes_nothing,
    fairness_pressure_yields_at_the_budget,
    a_tick_ends_with_its_budget,
    an_external_completion_is_served_beside_endless_chains,
    a_step_begins_only_after_the_one_before_was_applied,
    timers_of_the_same_moment_fire_in_the_order_of_registration,
    a_failed_run_does_not_poison_its_instance,
    cancel_after_ms_cancels_at_that_virtual_moment,
    runs_of_one_instance_keep_their_own_buffers,
    the_same_seed_gives_the_same_trace,
);
