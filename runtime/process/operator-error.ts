/**
 * An error that the operator can fix. Its message states the problem and the remedy; no stack is
 * logged.
 */
export class OperatorError extends Error {}

/**
 * Whether an error is for the operator. Modules that must not import this module, such as sql/, set
 * `forOperator` on their errors.
 */
export function isForOperator(error: unknown): error is Error {
  if (error instanceof OperatorError) return true;
  return error instanceof Error && 'forOperator' in error && error.forOperator === true;
}
