import type * as z from 'zod';

/** A body as one media type has it: a document's schema, or bytes that no schema describes. */
export type Content = z.ZodType | 'text' | 'binary';

export interface ResponseSpec {
  description: string;
  /** By media type; absent when the answer has no body. */
  content?: Record<string, Content>;
  /** Headers that only this answer has, each with what it says. */
  headers?: Record<string, string>;
  example?: unknown;
  /** In place of `example` where one does not show it, by name. */
  examples?: Record<string, unknown>;
}

/** One operation as it is documented. What is served as OpenAPI is made of these and of nothing else. */
export interface OperationSpec<Code extends string = string> {
  /** operationId */
  id: string;
  method: 'get' | 'post' | 'delete';
  /** As OpenAPI writes it: `/v1/proofs/{proof_id}`. */
  path: string;
  tag: string;
  summary: string;
  description?: string;
  /** Members are strings, as they are sent. */
  query?: z.ZodObject;
  /** Request headers besides those that every operation takes. */
  headers?: Record<string, string>;
  /** Headers that any answer may have, problems too, each with what it says. */
  answerHeaders?: Record<string, string>;
  body?: {
    schema: z.ZodType;
    examples: Record<string, unknown>;
    /** The largest one, in bytes; absent: the API's own limit. */
    limit?: number;
    /** Other media types that are taken, with what is sent in them. */
    alsoAs?: Record<string, Content>;
    /** What can be wrong with it, if that is not what can be wrong with any body. */
    problems?: readonly Code[];
  };
  /** Every answer that is not a problem, by status. */
  responses: Record<number, ResponseSpec>;
  /** Problems of its own, besides those that its kind of operation has. */
  problems: readonly Code[];
}
