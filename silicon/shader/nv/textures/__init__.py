"""What the texture units read: headers of textures, samplers, formats of texels and where these lie, filters."""
