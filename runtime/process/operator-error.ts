/**
 * An error for whoever runs the program: its message says what is wrong and what to do, and a stack
 * would add nothing.
 */
export class OperatorError extends Error {
  override name = 'OperatorError';
}

/**
 * Whether an error is for whoever runs the program. Folders that cannot see this one, such as the
 * queries, mark theirs with `forOperator`.
 */
export function isForOperator(error: unknown): error is Error {
  if (error instanceof OperatorError) return true;
  return error instanceof Error && 'forOperator' in error && error.forOperator === true;
}
