import type * as z from 'zod';
import type { JsonObject, OpenApiHeader, OpenApiParameter } from './types.js';
import type { OperationSpec } from './operation-spec.js';

/** What a reader has to know besides the operations: shown on the page and told in the document. */
export interface GuideSection {
  id: string;
  title: string;
  /** Paragraphs; one that begins with "- " is an item of a list. Backticks mark code. */
  text: readonly string[];
}

/** What examples are put together from wherever a schema has one of its parts. */
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

/** The errors of an API. */
export interface DescribedProblems<Spec> {
  table: ProblemTable;
  /** What all of them have. */
  schema: z.ZodType;
  /** What some carry besides, by code. */
  members: Partial<Record<string, z.ZodObject>>;
  /** Headers that come with some, each with what it says. */
  headers: Partial<Record<string, Record<string, string>>>;
  /** Every problem that an operation can answer with. */
  of(spec: Spec): readonly string[];
  example(code: string, members?: Record<string, unknown>): unknown;
}

/** What an API says of itself besides its operations. */
export interface ApiDescription<Spec extends OperationSpec> {
  title: string;
  summary: string;
  guide: readonly GuideSection[];
  /** Clients ignore members that they do not know, except in what is signed or hashed. */
  answersMayGainMembers: boolean;
  /** What each tag is about, in the order in which they are shown. */
  tags: Record<string, string>;
  problems: DescribedProblems<Spec>;
  /** What may stand in a path, by the parameter's name. */
  inPath: Record<string, { description?: string; schema?: JsonObject }>;
  /** Schemas of request headers that are more than a string, by name. */
  headerSchemas: Record<string, JsonObject>;
  /** Request headers that operations of a kind have in common. */
  requestHeadersOf(spec: Spec): OpenApiParameter[];
  /** Headers that answers of many operations have. */
  commonHeaders: Record<string, OpenApiHeader>;
  /** Which of those an answer has. */
  commonHeadersOf(spec: Spec, status: number): readonly string[];
  /** What an operation asks of its caller: in words, and as members of the OpenAPI operation. */
  access(spec: Spec): { words: string | null; members: JsonObject };
  securitySchemes: JsonObject | null;
  worked: WorkedExample;
}
