import type { ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { OpenApiDocument, OpenApiOperation } from '#api/openapi/types';
import { send, type Reply } from './send.js';

const ADDRESS = 'https://api.test/openapi.json';
const CLOSED = 'https://api.test/closed.json';

/** One operation of a served document, with where it is. */
export interface ServedOperation {
  id: string;
  method: string;
  path: string;
  operation: OpenApiOperation;
}

/** What a client knows of an API that has read nothing but its `/openapi.json`. */
export interface ServedOpenApi {
  document: OpenApiDocument;
  operations: ServedOperation[];
  /** Compiles the schema at a place in the document, given as a JSON pointer. */
  validatorAt(pointer: string): ValidateFunction;
  /**
   * What is wrong with an answer by what is documented for its operation, and which members it has
   * that are not documented: a client ignores these, and this service sends none.
   */
  faultsOf(operation: ServedOperation, reply: Reply): string[];
}

export async function readOpenApi(url: string): Promise<ServedOpenApi> {
  const reply = await send(url, { method: 'GET', path: '/openapi.json' });
  return openApiReader(JSON.parse(reply.bytes.toString()) as OpenApiDocument);
}

export function openApiReader(document: OpenApiDocument): ServedOpenApi {
  const ajv = new Ajv2020({
    strict: true,
    strictTypes: false,
    strictRequired: false,
    allErrors: true,
  });
  addFormats.default(ajv);
  // The document is no schema, but it is where the schemas' references lead.
  ajv.addVocabulary([...Object.keys(document)]);
  ajv.addSchema({ ...document, $id: ADDRESS });
  ajv.addSchema({ ...closed(document), $id: CLOSED });
  const compiled = new Map<string, ValidateFunction>();
  const validatorAt = (pointer: string, address = ADDRESS): ValidateFunction => {
    const $ref = `${address}#${pointer}`;
    const validate = compiled.get($ref) ?? ajv.compile({ $ref });
    compiled.set($ref, validate);
    return validate;
  };
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      id: operation.operationId,
      method: method.toUpperCase(),
      path,
      operation,
    })),
  );
  return { document, operations, validatorAt, faultsOf };

  function faultsOf(served: ServedOperation, reply: Reply): string[] {
    const { operation, method, path } = served;
    const documented = operation.responses[reply.status];
    if (documented === undefined) return [`status ${reply.status} is not documented`];
    const type = reply.headers['content-type']?.split(';')[0];
    const faults = undocumentedHeaders(reply, documented.headers);
    if (type === undefined) {
      const mayBeEmpty = documented.content === undefined;
      if (!mayBeEmpty) faults.push('there is no content type');
      if (reply.bytes.length > 0) faults.push('there is a body without a content type');
      return faults;
    }
    const media = documented.content?.[type];
    if (media === undefined) return [...faults, `${type} is not documented for ${reply.status}`];
    if (!/[/+]json$/.test(type) || media.schema === undefined) return faults;
    const pointer = ['paths', path, method.toLowerCase(), 'responses', String(reply.status)]
      .concat('content', type, 'schema')
      .map(step)
      .join('');
    const validate = validatorAt(pointer, CLOSED);
    if (!validate(JSON.parse(reply.bytes.toString()))) {
      faults.push(`the body does not fit: ${ajv.errorsText(validate.errors)}`);
    }
    return faults;
  }
}

/** The document, with no room for members that it does not name. */
function closed(document: OpenApiDocument): OpenApiDocument {
  return JSON.parse(JSON.stringify(document), (_name, value: unknown) => {
    const leavesOpen =
      isObject(value) &&
      isObject(value['properties']) &&
      value['additionalProperties'] === undefined &&
      value['allOf'] === undefined;
    return leavesOpen ? { ...value, additionalProperties: false } : value;
  }) as OpenApiDocument;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function step(name: string): string {
  return `/${encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1'))}`;
}

/** Headers that HTTP itself or good manners put on every answer, and that say nothing of this API. */
const ORDINARY = new Set([
  'access-control-allow-origin',
  'access-control-expose-headers',
  'cache-control',
  'connection',
  'content-length',
  'content-security-policy',
  'content-type',
  'cross-origin-resource-policy',
  'date',
  'keep-alive',
  'referrer-policy',
  'transfer-encoding',
  'vary',
  'x-content-type-options',
]);

function undocumentedHeaders(reply: Reply, documented: Record<string, unknown>): string[] {
  const known = new Set(Object.keys(documented).map((name) => name.toLowerCase()));
  return Object.keys(reply.headers)
    .filter((name) => !ORDINARY.has(name) && !known.has(name))
    .map((name) => `the header ${name} is not documented for ${reply.status}`);
}
