import type * as z from 'zod';

/** Schema of a body in one media type, or bytes without a schema. */
export type Content = z.ZodType | 'text' | 'binary';

export interface ResponseSpec {
  description: string;
  /** By media type; absent without a body. */
  content?: Record<string, Content>;
  /** Headers of this response only, with descriptions. */
  headers?: Record<string, string>;
  example?: unknown;
  examples?: Record<string, unknown>;
}

/** Specification of one operation. The OpenAPI document is generated from these only. */
export interface OperationSpec<Code extends string = string> {
  id: string;
  method: 'get' | 'post' | 'delete';
  /** As OpenAPI writes it: `/v1/proofs/{proof_id}`. */
  path: string;
  tag: string;
  summary: string;
  description?: string;
  /** Members are strings, before transformation. */
  query?: z.ZodObject;
  /** Request headers besides the common ones, with descriptions. */
  headers?: Record<string, string>;
  /** Headers of any response, including problems, with descriptions. */
  answerHeaders?: Record<string, string>;
  body?: {
    schema: z.ZodType;
    examples: Record<string, unknown>;
    /** Size limit in bytes; absent: the API's default. */
    limit?: number;
    /** Other supported media types. */
    alsoAs?: Record<string, Content>;
    /** Replaces the default problems of bodies. */
    problems?: readonly Code[];
  };
  /** Successful responses, by status. */
  responses: Record<number, ResponseSpec>;
  /** Problems besides those of every operation of its kind. */
  problems: readonly Code[];
}
