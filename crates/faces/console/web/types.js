// The shapes of the server's answers, from its own OpenAPI document (see tests/ beside this folder).

/** @typedef {import('./api.js').Schemas} Schemas */
/** @typedef {Schemas['WhoAmI']} WhoAmI */
/** @typedef {Schemas['NamespaceList']} NamespaceList */
/** @typedef {Schemas['ServerStatsDoc']} Stats */
/** @typedef {Schemas['StatsHistory']} History */
/** @typedef {Schemas['TopicList']} TopicList */
/** @typedef {Schemas['TopicDoc']} Topic */
/** @typedef {Schemas['GroupPage']} Group */
/** @typedef {Schemas['GroupList']} GroupList */
/** @typedef {Schemas['InflightList']} Inflight */
/** @typedef {Schemas['EventStory']} Story */
/** @typedef {Schemas['Trace']} Trace */
/** @typedef {Schemas['TraceNode']} TraceNode */
/** @typedef {Schemas['DeadLetters']} DeadLetters */
/** @typedef {Schemas['Sought']} Sought */
/** @typedef {Schemas['LetterSummary']} LetterSummary */
/** @typedef {Schemas['JobDoc']} Job */
/** @typedef {Schemas['JobList']} JobList */
/** @typedef {Schemas['HandlerList']} HandlerList */
/** @typedef {Schemas['HandlerDoc']} Handler */
/** @typedef {Schemas['OpenClaims']} OpenClaims */
/** @typedef {Schemas['OpenClaimDoc']} OpenClaim */
/** @typedef {Schemas['HandlerLettersPage']} HandlerLetters */
/** @typedef {Schemas['HandlerLettersDone']} HandlerLettersDone */
/** @typedef {Schemas['SessionList']} SessionList */
/** @typedef {Schemas['SessionDoc']} Session */
/** @typedef {Schemas['ScheduleList']} ScheduleList */
/** @typedef {Schemas['ScheduleDoc']} Schedule */
/** @typedef {Schemas['DelayedList']} DelayedList */
/** @typedef {Schemas['DelayedDoc']} Delayed */
/** @typedef {Schemas['TimerList']} TimerList */
/** @typedef {Schemas['TimerDoc']} Timer */
/** @typedef {Schemas['CapabilityDoc']} Capability */
/** @typedef {Schemas['CapabilityList']} CapabilityList */
/** @typedef {Schemas['ConnectionDoc']} Connection */
/** @typedef {Schemas['ConnectionList']} ConnectionList */
/** @typedef {Schemas['SettingsDoc']} Settings */
/** @typedef {Schemas['LogDoc']} Log */
/** @typedef {Schemas['LogLineDoc']} LogLine */

export {};
