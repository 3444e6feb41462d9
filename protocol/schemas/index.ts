/** Every document of the service as a zod schema, with the type inferred from it. */
export * from './admission-status.js';
export * from './aep.js';
export * from './agent.js';
export * from './execute.js';
export * from './facade.js';
export * from './ids.js';
export * from './inclusion.js';
export * from './log-entry.js';
export * from './lookup.js';
export * from './primitives.js';
export * from './problem.js';
export * from './proof-export.js';
export * from './proof-record.js';
export * from './proof-view.js';
export * from './verdict.js';
