/** A parser of untrusted input, with the properties that must hold for any input. */
export interface Target {
  name: string;
  /** Well-formed inputs, and near misses, that others are made of. */
  seeds: readonly Uint8Array[];
  /**
   * Parses an input, and checks what must hold of the result.
   *
   * @returns `accepted`, or the code of the declared error by which it was refused
   * @throws whatever is neither: a finding
   */
  run(input: Uint8Array): string;
}

/** A property does not hold. */
export class BrokenProperty extends Error {
  override readonly name = 'BrokenProperty';
}

export function must(holds: boolean, what: string): void {
  if (!holds) throw new BrokenProperty(what);
}

export const ACCEPTED = 'accepted';
