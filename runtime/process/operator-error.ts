/**
 * An error that the operator can fix. The message states the problem and the remedy; no stack is logged.
 */
export class OperatorError extends Error {}
