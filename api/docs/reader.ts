import type { GuideSection, ProblemTable } from '../openapi/description.js';
import type { OpenApiOperation, OpenApiParameter } from '../openapi/types.js';

/** Shell variables and values that make the examples work when pasted. */
export interface Shell {
  about: string;
  /** Variables that the reader sets once. */
  setup: string;
  inPath: Record<string, string>;
  /** Query strings for operations that need one, by operation id. */
  queries: Record<string, string>;
  headersOf(operation: OpenApiOperation): string[];
  /** Replaces values in an indented JSON body by the reader's variables. */
  inBody: readonly (readonly [RegExp, string])[];
}

export interface ReaderText {
  guide: readonly GuideSection[];
  problems: ProblemTable;
  shell: Shell;
  /** Credential headers, which OpenAPI lists as security schemes instead of parameters. */
  credentialsOf(operation: OpenApiOperation): OpenApiParameter[];
}
