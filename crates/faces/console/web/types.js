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
/** @typedef {Schemas['DeadLetters']} DeadLetters */
/** @typedef {Schemas['Sought']} Sought */
/** @typedef {Schemas['LetterSummary']} LetterSummary */
/** @typedef {Schemas['JobDoc']} Job */
/** @typedef {Schemas['JobList']} JobList */
/** @typedef {Schemas['CapabilityDoc']} Capability */
/** @typedef {Schemas['CapabilityList']} CapabilityList */
/** @typedef {Schemas['ConnectionDoc']} Connection */
/** @typedef {Schemas['ConnectionList']} ConnectionList */
/** @typedef {Schemas['SettingsDoc']} Settings */
/** @typedef {Schemas['LogDoc']} Log */
/** @typedef {Schemas['LogLineDoc']} LogLine */

export {};
