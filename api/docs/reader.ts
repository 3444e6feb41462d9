import type { GuideSection, ProblemTable } from '../openapi/description.js';
import type { OpenApiOperation, OpenApiParameter } from '../openapi/types.js';

/** What a reader's shell has, so that the examples work when they are pasted. */
export interface Shell {
  /** Said above `setup`. */
  about: string;
  /** What a reader puts in once. */
  setup: string;
  /** What stands in a path, by the parameter's name. */
  inPath: Record<string, string>;
  /** What follows the path, by operation, where the call says nothing without it. */
  queries: Record<string, string>;
  /** The arguments that an operation's headers are. */
  headersOf(operation: OpenApiOperation): string[];
  /** The reader's own values in a body that is written as indented JSON. */
  inBody: readonly (readonly [RegExp, string])[];
}

/** What the page of an API shows beside its OpenAPI document. */
export interface ReaderText {
  guide: readonly GuideSection[];
  problems: ProblemTable;
  shell: Shell;
  /** What identifies the caller, which OpenAPI does not list among an operation's parameters. */
  credentialsOf(operation: OpenApiOperation): OpenApiParameter[];
}
