import { describe, expect, it } from 'vitest';
import { engineOpenApi } from '#api/engine/openapi/document';
import { OPERATIONS } from '#api/engine/operations';
import type { OpenApiDocument } from '#api/openapi/types';
import { checkOpenApi } from './helpers/openapi-checks.js';
import { openApiReader } from './helpers/served-openapi.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const document = JSON.parse(JSON.stringify(engineOpenApi(specs))) as OpenApiDocument;
const api = openApiReader(document);
const { schemas } = document.components;

checkOpenApi('Engine API', document, specs);

describe('the OpenAPI document of the engine', () => {
  it('knows how a key is sent', () => {
    expect(document).toMatchObject({
      components: { securitySchemes: { ApiKey: { type: 'apiKey', in: 'header' } } },
    });
  });

  it('asks for a key where the operation does, with any one of its scopes', () => {
    for (const { operation } of api.operations) {
      const scopes = operation['x-scopes']!;
      const tenant = operation.parameters.find(({ name }) => name === 'X-Svc-Tenant-Id');
      expect(tenant?.required ?? false).toBe(scopes.length > 0);
      expect(operation['security']).toEqual(
        scopes.length === 0 ? [] : [...scopes, 'admin'].map((scope) => ({ ApiKey: [scope] })),
      );
      expect('401' in operation.responses).toBe(scopes.length > 0);
    }
  });

  it('keeps in words what JSON Schema cannot say', () => {
    expect(schemas['Text']).toMatchObject({ minLength: 1, maxLength: 512 });
    expect(schemas['Time']).toMatchObject({ format: 'date-time' });
    expect(schemas['Aep']!['description']).toContain('`execution_id`: exec_ and the proof id.');
    expect(schemas['VerifyRequest']!['description']).toContain(
      'roof_id alone, or aep and envelope',
    );
  });
});
