/**
 * An error for whoever runs the program: its message says what is wrong and what to do, and a stack
 * would add nothing.
 */
export class OperatorError extends Error {
  override name = 'OperatorError';
}
