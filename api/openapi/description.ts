import type * as z from 'zod';
import type { JsonObject, OpenApiHeader, OpenApiParameter } from './types.js';
import type { OperationSpec } from './operation-spec.js';

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
  schema: z.ZodType;
  members: Partial<Record<string, z.ZodObject>>;
  headers: Partial<Record<string, Record<string, string>>>;
  of(spec: Spec): readonly string[];
  example(code: string, members?: Record<string, unknown>): unknown;
}

export interface ApiDescription<Spec extends OperationSpec> {
  title: string;
  summary: string;
  guide: readonly GuideSection[];
  /** Clients must ignore unknown members, except in signed or hashed documents. */
  answersMayGainMembers: boolean;
  tags: Record<string, string>;
  problems: DescribedProblems<Spec>;
  inPath: Record<string, { description?: string; schema?: JsonObject }>;
  /** Schemas of request headers that are more than a string, by name. */
  headerSchemas: Record<string, JsonObject>;
  requestHeadersOf(spec: Spec): OpenApiParameter[];
  commonHeaders: Record<string, OpenApiHeader>;
  commonHeadersOf(spec: Spec, status: number): readonly string[];
  /** Authorization of an operation, in words and as OpenAPI members. */
  access(spec: Spec): { words: string | null; members: JsonObject };
  securitySchemes: JsonObject | null;
  worked: WorkedExample;
}
