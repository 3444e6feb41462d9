import { describe, expect, it } from 'vitest';
import { engineOpenApi } from '#api/engine/openapi/document';
import { OPERATIONS } from '#api/engine/operations';
import type { OpenApiDocument } from '#api/openapi/types';
import { checkOpenApi } from '../../fixtures/openapi-checks.js';
import { openApiReader, step } from '../../fixtures/served-openapi.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const document = JSON.parse(JSON.stringify(engineOpenApi(specs))) as OpenApiDocument;
const api = openApiReader(document);
const { schemas } = document.components;

checkOpenApi('Engine API', document, specs);

describe('engine OpenAPI document', () => {
  it('opens responses, but not bodies, receipts and signed documents', () => {
    const isClosed = (id: string): boolean =>
      JSON.stringify(schemas[id]).includes('"additionalProperties":false');
    const reachable = (refs: unknown, found = new Set<string>()): Set<string> => {
      for (const [, id = ''] of JSON.stringify(refs).matchAll(/#\/components\/schemas\/(\w+)/g)) {
        if (!found.has(id)) reachable(schemas[id], found.add(id));
      }
      return found;
    };
    const roots = ['ExecuteReceipt', 'AgentReceipt', 'Aep', 'DsseEnvelope', 'ProofRecord'];
    const fixed = reachable([...roots, 'ProofEntry'].map((id) => `#/components/schemas/${id}`));
    const answered = reachable(api.operations.map(({ operation }) => operation.responses));
    expect([...answered].filter((id) => isClosed(id) && !fixed.has(id))).toEqual([]);
    for (const id of roots) expect([id, isClosed(id)]).toEqual([id, true]);

    for (const { path, method, operation } of api.operations) {
      const body = operation.requestBody?.content['application/json'];
      const at = ['paths', path, method.toLowerCase(), 'requestBody', 'content'];
      const pointer = [...at, 'application/json', 'schema'].map(step).join('');
      for (const { value } of Object.values(body?.examples ?? {})) {
        const sent = (Array.isArray(value) ? (value as unknown[])[0] : value) as object;
        const more = { ...sent, added_since: 'text' };
        const validate = api.validatorAt(pointer);
        expect([path, validate(Array.isArray(value) ? [more] : more)]).toEqual([path, false]);
      }
    }
  });
});
