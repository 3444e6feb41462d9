import type * as z from 'zod';
import type { JsonObject, OpenApiHeader, OpenApiParameter } from './types.js';
import type { OperationSpec } from './operation-spec.js';

/** A section of the guide, on the page and in the OpenAPI description. */
export interface GuideSection {
  id: string;
  title: string;
  /** Paragraphs; one that begins with "- " is an item of a list. Backticks mark code. */
  text: readonly string[];
}

/** Consistent sample values for generated examples. */
export interface WorkedExample {
  /** Whole documents, by the name of their component. */
  documents: Record<string, unknown>;
  /** Single values, by the name of the member that has them. */
  members: Record<string, unknown>;
  /** Text that is not JSON, by media type. */
  texts: Record<string, string>;
}

/** Status and title of each problem, by its code. */
export type ProblemTable = Record<string, readonly [status: number, title: string]>;

export interface DescribedProblems<Spec> {
  table: ProblemTable;
  /** Schema of the common members. */
  schema: z.ZodType;
  /** Additional members, by code. */
  members: Partial<Record<string, z.ZodObject>>;
  /** Response headers with descriptions, by code. */
  headers: Partial<Record<string, Record<string, string>>>;
  /** All problems of an operation. */
  of(spec: Spec): readonly string[];
  example(code: string, members?: Record<string, unknown>): unknown;
}

/** Description of an API besides its operations. */
export interface ApiDescription<Spec extends OperationSpec> {
  title: string;
  summary: string;
  guide: readonly GuideSection[];
  /** Clients must ignore unknown members, except in signed or hashed documents. */
  answersMayGainMembers: boolean;
  /** Tag descriptions in display order. */
  tags: Record<string, string>;
  problems: DescribedProblems<Spec>;
  /** Path parameters, by name. */
  inPath: Record<string, { description?: string; schema?: JsonObject }>;
  /** Schemas of request headers that are more than a string, by name. */
  headerSchemas: Record<string, JsonObject>;
  /** Common request headers of an operation. */
  requestHeadersOf(spec: Spec): OpenApiParameter[];
  /** Shared response headers. */
  commonHeaders: Record<string, OpenApiHeader>;
  /** Names of the shared headers of a response. */
  commonHeadersOf(spec: Spec, status: number): readonly string[];
  /** Authorization of an operation, in words and as OpenAPI members. */
  access(spec: Spec): { words: string | null; members: JsonObject };
  securitySchemes: JsonObject | null;
  worked: WorkedExample;
}
